#include <immintrin.h>

#include "gemm_ints.h"
#include "gemm_peak_chains.h"
#include "ints8_avx2.h"

namespace noria {
namespace {

// Bytes are multiplied into 16 bits.
void run_byte_pairs(int64_t num_rounds) {
  run_chains<Avx2>(num_rounds, I32x8::zero(),
                   [](I32x8 sum, I32x8 x) { return add_shorts(sum, multiply_byte_pairs(x, x)); });
}

}  // namespace

constexpr Peaks kPeaksAvx2 = {
    float_peak<Avx2>(), short_peak<Avx2>(), {Avx2::kLanes * 4 * kChains, run_byte_pairs}};

void read_stream(const uint8_t* data, int64_t num_bytes) {
  I32x8 even = I32x8::zero(), odd = I32x8::zero();
  for (int64_t at = 0; at < num_bytes; at += 64) {
    prefetch(data + at + kPrefetchBytes);
    even = even + I32x8::load(data + at);
    odd = odd + I32x8::load(data + at + 32);
  }
  Avx2::keep(even);
  Avx2::keep(odd);
}

}  // namespace noria
