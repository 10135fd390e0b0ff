// 8-bit weights whose codes have at most 6 bits: 4 products with int8 activations fit 16 bits (4 x 63 x 128 < 2^15),
// so bytes are multiplied as they are, two at a step.
#include "gemm_ints_avx2.h"

namespace noria {
namespace {

template <int kGroup, bool kMinima>
struct W8OfFewBits {
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
        for (int r = 0; r < kRows; ++r) scales.add(x, row + r, g, sums[r], totals[r]);
        tile += weight.format.group_bytes();
        activations += kGroup;
      }
      for (int r = 0; r < kRows; ++r) {
        for (int c = 0; c < 2; ++c) totals[r][c].store(out + r * kPanelColumns + c * 8);
      }
    }

    // Two lines at a time: their 4 products fit 16 bits together.
    static void sum_group(const uint8_t* codes, const int8_t* x, int64_t stride, I32x8 (&sums)[kRows][2]) {
      const I32x8 ones = I32x8::all(0x00010001);
      for (int r = 0; r < kRows; ++r) sums[r][0] = sums[r][1] = I32x8::zero();
      for (int line = 0; line < kGroup / 4; line += 2) {
        const uint8_t* at = codes + line * kLineBytes;
        const I32x8 first[2] = {I32x8::load(at), I32x8::load(at + 32)};
        const I32x8 second[2] = {I32x8::load(at + kLineBytes), I32x8::load(at + kLineBytes + 32)};
        if (kRows == 1) prefetch(at + kPrefetchBytes);
        if (kRows == 1) prefetch(at + kPrefetchBytes + kLineBytes);
        for (int r = 0; r < kRows; ++r) {
          const I32x8 near = I32x8::all_at(x + r * stride + line * 4);
          const I32x8 far = I32x8::all_at(x + r * stride + line * 4 + 4);
          for (int c = 0; c < 2; ++c) {
            const I32x8 shorts = add_shorts(multiply_byte_pairs(first[c], near), multiply_byte_pairs(second[c], far));
            sums[r][c] = sums[r][c] + multiply_pairs(shorts, ones);
            pin(sums[r][c]);
          }
        }
      }
    }
  };
};

}  // namespace

void w8_few_panel_avx2(const PackedLinear& weight, const uint8_t* panel, const Activations& x, int64_t begin, int64_t end,
                   float* out) {
  panel_of<W8OfFewBits>(weight.format)(weight, panel, x, begin, end, out);
}

}  // namespace noria
