// 4-bit weights: bytes are multiplied as they are, and a group's sums fit 16 bits (32 x 15 x 128 / 2 < 2^15, as each
// column has two), so they are widened once a group.
#include "gemm_ints_avx2.h"

namespace noria {
namespace {

struct W4Sums {
  static const int8_t* rows(const QuantRows& x) { return x.codes; }

  template <int kGroup, int kRows>
  static void sum(const uint8_t* codes, const int8_t* x, int64_t stride, I32x8 (&sums)[kRows][2]) {
    const I32x8 mask = I32x8::all(0x0f0f0f0f);
    for (int r = 0; r < kRows; ++r) sums[r][0] = sums[r][1] = I32x8::zero();
    for (int line = 0; line < kGroup / 8; ++line) {
      const I32x8 first = I32x8::load(codes + line * kLineBytes);
      const I32x8 second = I32x8::load(codes + line * kLineBytes + 32);
      if (kRows == 1) prefetch(codes + line * kLineBytes + kPrefetchBytes);
      const I32x8 low[2] = {first & mask, second & mask};
      const I32x8 high[2] = {high_nibbles(first) & mask, high_nibbles(second) & mask};
      for (int r = 0; r < kRows; ++r) {
        const I32x8 near = I32x8::all_at(x + r * stride + line * 8);
        const I32x8 far = I32x8::all_at(x + r * stride + line * 8 + 4);
        for (int c = 0; c < 2; ++c) {
          sums[r][c] = add_shorts(sums[r][c], multiply_byte_pairs(low[c], near));
          pin(sums[r][c]);
          sums[r][c] = add_shorts(sums[r][c], multiply_byte_pairs(high[c], far));
          pin(sums[r][c]);
        }
      }
    }
    for (int r = 0; r < kRows; ++r) {
      for (int c = 0; c < 2; ++c) sums[r][c] = multiply_pairs(sums[r][c], I32x8::all(0x00010001));
    }
  }

  static I32x8 high_nibbles(I32x8 bytes) { return {_mm256_srli_epi16(bytes.v, 4)}; }
};

}  // namespace

void w4_panel_avx2(const PackedLinear& weight, const uint8_t* panel, const Activations& x, int64_t begin, int64_t end,
                   float* out) {
  run_quantised<W4Sums>(weight, panel, x, begin, end, out);
}

}  // namespace noria
