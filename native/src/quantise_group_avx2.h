// One group of 32 activations to integers. For x86-64-v3 units only.
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

// 4 x 8 numbers, each rounded to the nearest integer: 16 shorts and 16 more, in order.
struct Shorts32 {
  __m256i low;
  __m256i high;
};

inline Shorts32 round_to_shorts(const F8 (&x)[4], F8 factor) {
  __m256i rounded[4];
  for (int i = 0; i < 4; ++i) rounded[i] = _mm256_cvtps_epi32((x[i] * factor).v);
  // Packing works on halves of registers; this puts their quarters into order.
  return {_mm256_permute4x64_epi64(_mm256_packs_epi32(rounded[0], rounded[1]), 0xd8),
          _mm256_permute4x64_epi64(_mm256_packs_epi32(rounded[2], rounded[3]), 0xd8)};
}

inline int32_t sum_ints(__m128i x) {
  x = _mm_add_epi32(x, _mm_shuffle_epi32(x, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(x, _mm_shuffle_epi32(x, 0xb1)));
}

inline int32_t sum_of_shorts(__m256i shorts) {
  const __m256i pairs = _mm256_madd_epi16(shorts, _mm256_set1_epi16(1));
  return sum_ints(_mm_add_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1)));
}

// Every four as 0, 2, 1, 3.
inline void store_shorts(__m256i codes, int16_t* at) {
  const __m256i ordered = _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(codes, 0xd8), 0xd8);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), ordered);
}

// Codes and sums of one group, whose scale is stored already.
inline void store_codes(Shorts32 codes, float scale, const QuantRows& out, int64_t row, int64_t group) {
  const int64_t at = row * out.k + group * kScaleGroup;
  if (out.form == RowForm::kBytes) {
    const __m256i bytes = _mm256_permute4x64_epi64(_mm256_packs_epi16(codes.low, codes.high), 0xd8);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out.bytes + at), bytes);
  } else {
    store_shorts(codes.low, out.shorts + at);
    store_shorts(codes.high, out.shorts + at + 16);
  }
  const int32_t low = sum_of_shorts(codes.low), high = sum_of_shorts(codes.high);
  float* halves = out.sums16 + at / kSumGroup;
  halves[0] = scale * float(low);
  halves[1] = scale * float(high);
  const float sum = scale * float(low + high);
  out.sums32[at / kScaleGroup] = sum;
  out.offsets32[at / kScaleGroup] = -kUsualZero * sum;
}

inline void quantise_group(const F8 (&x)[4], const QuantRows& out, int64_t row, int64_t group) {
  const float most = out.form == RowForm::kBytes ? 127.0f : 32767.0f;
  const float largest = largest_magnitude(x);
  const bool is_finite = largest <= std::numeric_limits<float>::max();
  const bool is_zero = largest < 1e-30f;  // the quotient below would overflow
  const bool is_plain = is_finite && !is_zero;
  const float scale = is_plain ? largest / most : is_finite ? 0 : std::numeric_limits<float>::quiet_NaN();
  out.scales[row * (out.k / kScaleGroup) + group] = scale;
  const Shorts32 nothing{_mm256_setzero_si256(), _mm256_setzero_si256()};
  store_codes(is_plain ? round_to_shorts(x, F8::all(most / largest)) : nothing, scale, out, row, group);
}

}  // namespace noria
