// 8-bit weights whose codes have at most 6 bits: 4 products with int8 activations fit 16 bits (4 x 63 x 128 < 2^15),
// so bytes are multiplied as they are, two at a step.
#include "gemm_ints_avx2.h"

namespace noria {
namespace {

struct FewBitSums {
  static const int8_t* rows(const QuantRows& x) { return x.codes; }

  // Two lines at a time: their 4 products fit 16 bits together.
  template <int kGroup, int kRows>
  static void sum(const uint8_t* codes, const int8_t* x, int64_t stride, I32x8 (&sums)[kRows][2]) {
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

}  // namespace

void w8_few_panel_avx2(const PackedLinear& weight, const uint8_t* panel, const Activations& x, int64_t begin,
                       int64_t end, float* out) {
  run_quantised<FewBitSums>(weight, panel, x, begin, end, out);
}

}  // namespace noria
