// 8-bit weights. Pairs of u8 x s8 overflow 16 bits, so rows are shorts; codes of at most 6 bits may take bytes.
#include "gemm_codes.h"
#include "ints8_avx2.h"

namespace noria {
namespace {

// Four products of 6 bits with 8 fit 16 bits (4 x 63 x 128 < 2^15): bytes are multiplied as they are, two steps
// before they are widened.
struct W8FewBytes {
  static constexpr Lack kLack = Lack::kZero;
  static constexpr int kCodesAStep = 4;
  static const int8_t* items(const QuantRows& x) { return x.bytes; }

  explicit W8FewBytes(const WeightFormat&) {}

  static I32x8 unpack(const uint8_t* codes, int step, int part) { return load_line<Avx2>(codes, step, part); }

  template <int kSteps, class Group, int kRows>
  static void sum(const Group& group, const int8_t* x, int64_t stride, I32x8 (&sums)[kRows][2]) {
#pragma GCC unroll 8
    for (int step = 0; step < kSteps; step += 2) {
      for (int r = 0; r < kRows; ++r) {
        const I32x8 near = I32x8::all_at(x + r * stride + step * 4);
        const I32x8 far = I32x8::all_at(x + r * stride + step * 4 + 4);
        for (int c = 0; c < 2; ++c) {
          const I32x8 shorts = add_shorts(multiply_byte_pairs(group.at(step, c), near),
                                          multiply_byte_pairs(group.at(step + 1, c), far));
          const I32x8 product = multiply_pairs(shorts, I32x8::all_shorts(1));
          sums[r][c] = step == 0 ? product : sums[r][c] + product;
          sums[r][c].pin();
        }
      }
    }
  }
};

}  // namespace

void w8_shorts_panel_avx2(const PackedLinear& weight, const uint8_t* panel, const Activations& x, int64_t begin,
                          int64_t end, float* out) {
  run_quantised<Avx2, W8Shorts<Avx2>>(weight, panel, x, begin, end, out);
}

void w8_few_panel_avx2(const PackedLinear& weight, const uint8_t* panel, const Activations& x, int64_t begin,
                       int64_t end, float* out) {
  run_quantised<Avx2, W8FewBytes>(weight, panel, x, begin, end, out);
}

}  // namespace noria
