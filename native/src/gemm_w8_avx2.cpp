// 8-bit weights: pairs of u8 x s8 overflow 16 bits, so both are widened to 16 bits first and summed in 32. A
// line's even bytes are one vector, its odd bytes another; QuantRows::wide has the activations in that order.
#include "gemm_ints_avx2.h"

namespace noria {
namespace {

template <int kGroup, bool kMinima>
struct W8 {
  template <int kRows>
  struct Tile {
    static void run(const PackedLinear& weight, const uint8_t* tile, const QuantRows& x, int64_t row, float* out) {
      GroupScales<kGroup, kMinima> scales(weight.format);
      F8 totals[kRows][2];
      for (int r = 0; r < kRows; ++r) totals[r][0] = totals[r][1] = F8::zero();
      const int16_t* activations = x.wide + row * x.k;
      const int64_t num_groups = weight.num_groups();
      for (int64_t g = 0; g < num_groups; ++g) {
        I32x8 sums[kRows][2];
        sum_group(tile, activations, x.k, sums);
        scales.load(tile);
        for (int r = 0; r < kRows; ++r) scales.add(x, row + r, g, sums[r], totals[r]);
        tile += weight.format.group_bytes();
        activations += kGroup;
      }
      for (int r = 0; r < kRows; ++r) {
        for (int c = 0; c < 2; ++c) totals[r][c].store(out + r * kPanelColumns + c * 8);
      }
    }

    static void sum_group(const uint8_t* codes, const int16_t* x, int64_t stride, I32x8 (&sums)[kRows][2]) {
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
};

}  // namespace

void w8_panel_avx2(const PackedLinear& weight, const uint8_t* panel, const Activations& x, int64_t begin, int64_t end,
                   float* out) {
  panel_of<W8>(weight.format)(weight, panel, x, begin, end, out);
}

}  // namespace noria
