// 4-bit weights. Rows in bytes: bytes are multiplied as they are, and a group's sums fit 16 bits (32 x 15 x 128 / 2
// < 2^15, as each column has two), so they are widened once a group.
#include "gemm_ints_avx2.h"

namespace noria {
namespace {

struct W4Bytes {
  static constexpr Lack kLack = Lack::kZero;
  static constexpr int kCodesAStep = 4;
  static const int8_t* items(const QuantRows& x) { return x.bytes; }

  explicit W4Bytes(const WeightFormat&) {}

  // A line has two steps, in its low nibbles and in its high ones.
  static I32x8 unpack(const uint8_t* codes, int step, int half) {
    const I32x8 line = I32x8::load(codes + step / 2 * kLineBytes + half * 32);
    return (step % 2 == 0 ? line : shift_shorts<4>(line)) & I32x8::all(0x0f0f0f0f);
  }

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
          pin(sums[r][c]);
        }
      }
    }
    for (auto& both : sums) {
      for (I32x8& sum : both) sum = multiply_pairs(sum, I32x8::all_shorts(1));
    }
  }
};

struct W4Shorts : ShortSteps {
  explicit W4Shorts(const WeightFormat& format) : zero(I32x8::all_shorts(int16_t(format.zero))) {}

  // A line has four steps: k 0 and 2, 1 and 3 in the low nibbles, then the same in the high ones.
  I32x8 unpack(const uint8_t* codes, int step, int half) const {
    const I32x8 line = I32x8::load(codes + step / 4 * kLineBytes + half * 32);
    return subtract_shorts(nibbles(line, step % 4) & I32x8::all_shorts(15), zero);
  }

  static I32x8 nibbles(I32x8 line, int which) {
    switch (which) {
      case 0: return line;
      case 1: return shift_shorts<8>(line);
      case 2: return shift_shorts<4>(line);
      default: return shift_shorts<12>(line);
    }
  }

  const I32x8 zero;
};

}  // namespace

void w4_panel_avx2(const PackedLinear& weight, const uint8_t* panel, const Activations& x, int64_t begin, int64_t end,
                   float* out) {
  run_quantised<W4Bytes>(weight, panel, x, begin, end, out);
}

void w4_shorts_panel_avx2(const PackedLinear& weight, const uint8_t* panel, const Activations& x, int64_t begin,
                          int64_t end, float* out) {
  run_quantised<W4Shorts>(weight, panel, x, begin, end, out);
}

}  // namespace noria
