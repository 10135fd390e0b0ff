#include "gemm_peaks.h"

#include <immintrin.h>

#include <stdexcept>

#include "gemm_ints.h"
#include "ints8_avx2.h"

namespace noria {
namespace {

constexpr int kChains = 8;

// Hides a value from the optimiser, so that what made it is made.
template <typename T>
void keep(T& value) {
  asm volatile("" : "+x"(value));
}

template <typename Vector, typename Step>
void run_chains(int64_t num_rounds, Vector start, Step step) {
  Vector sums[kChains];
  for (Vector& sum : sums) sum = start;
  for (int64_t round = 0; round < num_rounds; ++round) {
    for (Vector& sum : sums) {
      keep(start.v);
      sum = step(sum, start);
    }
  }
  for (Vector& sum : sums) keep(sum.v);
}

void run_f32(int64_t num_rounds) {
  run_chains(num_rounds, F8::all(1e-3f), [](F8 sum, F8 x) { return fma(x, x, sum); });
}

void run_w8(int64_t num_rounds) {
  run_chains(num_rounds, I32x8::zero(), [](I32x8 sum, I32x8 x) { return sum + multiply_pairs(x, x); });
}

void run_w4(int64_t num_rounds) {
  run_chains(num_rounds, I32x8::zero(),
             [](I32x8 sum, I32x8 x) { return add_shorts(sum, multiply_byte_pairs(x, x)); });
}

}  // namespace

Peak peak_of(const std::string& kind) {
  if (kind == "float32") return {8 * kChains, run_f32};
  if (kind == "w8") return {16 * kChains, run_w8};
  if (kind == "w4") return {32 * kChains, run_w4};
  throw std::invalid_argument("peaks are of float32, w8 and w4, not " + kind);
}

void read_stream(const uint8_t* data, int64_t num_bytes) {
  I32x8 even = I32x8::zero(), odd = I32x8::zero();
  for (int64_t at = 0; at < num_bytes; at += 64) {
    prefetch(data + at + kPrefetchBytes);
    even = even + I32x8::load(data + at);
    odd = odd + I32x8::load(data + at + 32);
  }
  keep(even.v);
  keep(odd.v);
}

}  // namespace noria
