// 8-bit weights: pairs of u8 x s8 overflow 16 bits, so both are widened to 16 bits first and summed in 32. A
// line's even bytes are one vector, its odd bytes another; QuantRows::wide has the activations in that order.
#include "gemm_ints_avx2.h"

namespace noria {
namespace {

struct W8Sums {
  static const int16_t* rows(const QuantRows& x) { return x.wide; }

  template <int kGroup, int kRows>
  static void sum(const uint8_t* codes, const int16_t* x, int64_t stride, I32x8 (&sums)[kRows][2]) {
    const I32x8 mask = I32x8::all(0x00ff00ff);
    for (int r = 0; r < kRows; ++r) sums[r][0] = sums[r][1] = I32x8::zero();
    for (int line = 0; line < kGroup / 4; ++line) {
      const I32x8 first = I32x8::load(codes + line * kLineBytes);
      const I32x8 second = I32x8::load(codes + line * kLineBytes + 32);
      if (kRows == 1) prefetch(codes + line * kLineBytes + kPrefetchBytes);
      const I32x8 even[2] = {first & mask, second & mask};
      const I32x8 odd[2] = {odd_bytes(first), odd_bytes(second)};
      for (int r = 0; r < kRows; ++r) {
        const I32x8 near = I32x8::all_at(x + r * stride + line * 4);
        const I32x8 far = I32x8::all_at(x + r * stride + line * 4 + 2);
        for (int c = 0; c < 2; ++c) {
          sums[r][c] = sums[r][c] + multiply_pairs(even[c], near);
          pin(sums[r][c]);
          sums[r][c] = sums[r][c] + multiply_pairs(odd[c], far);
          pin(sums[r][c]);
        }
      }
    }
  }

  static I32x8 odd_bytes(I32x8 bytes) { return {_mm256_srli_epi16(bytes.v, 8)}; }
};

}  // namespace

void w8_panel_avx2(const PackedLinear& weight, const uint8_t* panel, const Activations& x, int64_t begin, int64_t end,
                   float* out) {
  run_quantised<W8Sums>(weight, panel, x, begin, end, out);
}

}  // namespace noria
