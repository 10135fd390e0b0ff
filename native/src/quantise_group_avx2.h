// One group of 32 activations to int8. For x86-64-v3 units only.
#pragma once

#include <immintrin.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "quantise.h"
#include "vec8.h"

namespace noria {

inline __m256i magnitude_bits(F8 x) {
  return _mm256_and_si256(_mm256_castps_si256(x.v), _mm256_set1_epi32(0x7fffffff));
}

// The bits of the largest magnitude: as integers they order as the numbers do, infinity and then NaN above all.
inline float largest_magnitude(const F8 (&x)[4]) {
  const __m256i upper = _mm256_max_epi32(magnitude_bits(x[0]), magnitude_bits(x[1]));
  const __m256i lower = _mm256_max_epi32(magnitude_bits(x[2]), magnitude_bits(x[3]));
  const __m256i both = _mm256_max_epi32(upper, lower);
  __m128i half = _mm_max_epi32(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1));
  half = _mm_max_epi32(half, _mm_shuffle_epi32(half, 0x4e));
  half = _mm_max_epi32(half, _mm_shuffle_epi32(half, 0xb1));
  return _mm_cvtss_f32(_mm_castsi128_ps(half));
}

// 4 x 8 numbers, each rounded to the nearest integer, as 32 bytes in order.
inline __m256i round_to_bytes(const F8 (&x)[4], F8 factor) {
  __m256i rounded[4];
  for (int i = 0; i < 4; ++i) rounded[i] = _mm256_cvtps_epi32((x[i] * factor).v);
  const __m256i upper = _mm256_packs_epi32(rounded[0], rounded[1]);
  const __m256i lower = _mm256_packs_epi32(rounded[2], rounded[3]);
  // Packing works on halves of registers; this puts their quarters into order.
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(upper, lower), order);
}

inline int32_t sum_ints(__m128i x) {
  x = _mm_add_epi32(x, _mm_shuffle_epi32(x, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(x, _mm_shuffle_epi32(x, 0xb1)));
}

// 16 codes widened, each four as 0, 2, 1, 3.
inline void store_wide(__m128i codes, int16_t* at) {
  const __m256i wide = _mm256_cvtepi8_epi16(codes);
  const __m256i ordered = _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(wide, 0xd8), 0xd8);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), ordered);
}

// codes, wide and sums of one group, whose scale is stored already.
inline void store_codes(__m256i codes, const QuantRows& out, int64_t row, int64_t group) {
  const int64_t at = row * out.k + group * kScaleGroup;
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out.codes + at), codes);
  store_wide(_mm256_castsi256_si128(codes), out.wide + at);
  store_wide(_mm256_extracti128_si256(codes, 1), out.wide + at + 16);
  const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), codes);
  const __m256i fours = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
  int32_t* halves = out.sums16 + at / kSumGroup;
  halves[0] = sum_ints(_mm256_castsi256_si128(fours));
  halves[1] = sum_ints(_mm256_extracti128_si256(fours, 1));
  out.sums32[at / kScaleGroup] = halves[0] + halves[1];
}

inline void quantise_group(const F8 (&x)[4], const QuantRows& out, int64_t row, int64_t group) {
  const float largest = largest_magnitude(x);
  const bool is_finite = largest <= std::numeric_limits<float>::max();
  const bool is_zero = largest < 1e-35f;  // 127 / largest would overflow
  float* scale = out.scales + row * (out.k / kScaleGroup) + group;
  if (is_finite && !is_zero) {
    *scale = largest / 127;
    store_codes(round_to_bytes(x, F8::all(127 / largest)), out, row, group);
  } else {
    *scale = is_finite ? 0 : std::numeric_limits<float>::quiet_NaN();
    store_codes(_mm256_setzero_si256(), out, row, group);
  }
}

}  // namespace noria
