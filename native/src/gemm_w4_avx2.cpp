// 4-bit weights. Rows in bytes: bytes are multiplied as they are, and a group's sums fit 16 bits (32 x 15 x 128 / 2
// < 2^15, as each column has two), so they are widened once a group.
#include "gemm_codes.h"
#include "ints8_avx2.h"

namespace noria {
namespace {

struct W4Bytes {
  static constexpr Lack kLack = Lack::kZero;
  static constexpr int kCodesAStep = 4;
  static const int8_t* items(const QuantRows& x) { return x.bytes; }

  explicit W4Bytes(const WeightFormat&) {}

  static I32x8 unpack(const uint8_t* codes, int step, int part) { return nibble_bytes<Avx2>(codes, step, part); }

  template <int kSteps, class Group, int kRows>
  static void sum(const Group& group, const int8_t* x, int64_t stride, I32x8 (&sums)[kRows][2]) {
#pragma GCC unroll 16
    for (int step = 0; step < kSteps; ++step) {
      const I32x8 weights[2] = {group.at(step, 0), group.at(step, 1)};
      for (int r = 0; r < kRows; ++r) {
        const I32x8 four = I32x8::all_at(x + r * stride + step * 4);
        for (int c = 0; c < 2; ++c) {
          const I32x8 product = multiply_byte_pairs(weights[c], four);
          sums[r][c] = step == 0 ? product : add_shorts(sums[r][c], product);
          sums[r][c].pin();
        }
      }
    }
    for (auto& both : sums) {
      for (I32x8& sum : both) sum = multiply_pairs(sum, I32x8::all_shorts(1));
    }
  }
};

}  // namespace

void w4_panel_avx2(const PackedLinear& weight, const uint8_t* panel, const Activations& x, int64_t begin, int64_t end,
                   float* out) {
  run_quantised<Avx2, W4Bytes>(weight, panel, x, begin, end, out);
}

void w4_shorts_panel_avx2(const PackedLinear& weight, const uint8_t* panel, const Activations& x, int64_t begin,
                          int64_t end, float* out) {
  run_quantised<Avx2, W4Shorts<Avx2>>(weight, panel, x, begin, end, out);
}

}  // namespace noria
