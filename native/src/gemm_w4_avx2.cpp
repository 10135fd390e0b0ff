// 4-bit weights: 8 products of a line's nibbles and int8 activations fit 16 bits, so a group of 32 is summed
// there (at most 16 x 15 x 128 < 2^15) and widened once.
#include "gemm_ints_avx2.h"

namespace noria {
namespace {

template <int kGroup, bool kMinima>
struct W4 {
  template <int kRows>
  struct Tile {
    static void run(const PackedLinear& weight, const uint8_t* tile, const QuantRows& x, int64_t row, float* out) {
      GroupScales<kGroup, kMinima> scales(weight.format);
      F8 totals[kRows][2];
      for (int r = 0; r < kRows; ++r) totals[r][0] = totals[r][1] = F8::zero();
      const int8_t* activations = x.codes + row * x.k;
      const int64_t num_groups = weight.num_groups();
      for (int64_t g = 0; g < num_groups; ++g) {
        I32x8 sums[kRows][2];
        sum_group(tile, activations, x.k, sums);
        scales.load(tile);
        for (int r = 0; r < kRows; ++r) {
          const I32x8 products[2] = {multiply_pairs(sums[r][0], I32x8::all(0x00010001)),
                                     multiply_pairs(sums[r][1], I32x8::all(0x00010001))};
          scales.add(x, row + r, g, products, totals[r]);
        }
        tile += weight.format.group_bytes();
        activations += kGroup;
      }
      for (int r = 0; r < kRows; ++r) {
        for (int c = 0; c < 2; ++c) totals[r][c].store(out + r * kPanelColumns + c * 8);
      }
    }

    // 16-bit sums, two to a column.
    static void sum_group(const uint8_t* codes, const int8_t* x, int64_t stride, I32x8 (&sums)[kRows][2]) {
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
    }

    static I32x8 high_nibbles(I32x8 bytes) { return {_mm256_srli_epi16(bytes.v, 4)}; }
  };
};

}  // namespace

void w4_panel_avx2(const PackedLinear& weight, const uint8_t* panel, const Activations& x, int64_t begin, int64_t end,
                   float* out) {
  panel_of<W4>(weight.format)(weight, panel, x, begin, end, out);
}

}  // namespace noria
