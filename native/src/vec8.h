// Eight floats in one AVX2 register, and the few functions on them that kernels need. For x86-64-v3 units only.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <initializer_list>

namespace noria {

struct F8 {
  __m256 v;

  static F8 load(const float* at) { return {_mm256_loadu_ps(at)}; }
  static F8 all(float x) { return {_mm256_set1_ps(x)}; }
  static F8 zero() { return {_mm256_setzero_ps()}; }
  void store(float* at) const { _mm256_storeu_ps(at, v); }
};

inline F8 operator+(F8 a, F8 b) { return {_mm256_add_ps(a.v, b.v)}; }
inline F8 operator-(F8 a, F8 b) { return {_mm256_sub_ps(a.v, b.v)}; }
inline F8 operator*(F8 a, F8 b) { return {_mm256_mul_ps(a.v, b.v)}; }
inline F8 operator/(F8 a, F8 b) { return {_mm256_div_ps(a.v, b.v)}; }
inline F8 min(F8 a, F8 b) { return {_mm256_min_ps(a.v, b.v)}; }
inline F8 abs(F8 a) { return {_mm256_andnot_ps(_mm256_set1_ps(-0.0f), a.v)}; }
inline F8 max(F8 a, F8 b) { return {_mm256_max_ps(a.v, b.v)}; }
inline F8 fma(F8 a, F8 b, F8 c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }    // a * b + c
inline F8 fnma(F8 a, F8 b, F8 c) { return {_mm256_fnmadd_ps(a.v, b.v, c.v)}; }  // c - a * b

// Eight bfloat16 numbers, widened.
inline F8 load_bf16(const uint16_t* at) {
  const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(wide, 16))};
}

// Eight halves, widened.
inline F8 load_f16(const uint8_t* at) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)))};
}

// One order for all: lanes 4 apart, then 2, then 1.
inline float sum_of(F8 x) {
  __m128 half = _mm_add_ps(_mm256_castps256_ps128(x.v), _mm256_extractf128_ps(x.v, 1));
  half = _mm_add_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
}

inline float max_of(F8 x) {
  __m128 half = _mm_max_ps(_mm256_castps256_ps128(x.v), _mm256_extractf128_ps(x.v, 1));
  half = _mm_max_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_max_ss(half, _mm_movehdup_ps(half)));
}

// e^x for x <= 88, within 2 units in the last place; exactly 1 at 0, exactly 0 below -87.3.
// x = n ln 2 + r with |r| <= ln 2 / 2, e^r by its series to r^7, 2^n put into the exponent.
inline F8 exp(F8 x) {
  const F8 lowest = F8::all(-87.3f);
  const __m256 gone = _mm256_cmp_ps(x.v, lowest.v, _CMP_LT_OQ);
  const F8 bounded = max(x, lowest);
  const F8 n{_mm256_round_ps((bounded * F8::all(1.44269504f)).v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
  const F8 r = fnma(n, F8::all(-2.12194440e-4f), fnma(n, F8::all(0.693359375f), bounded));
  F8 series = F8::all(1.0f / 5040);
  for (const float factor : {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f}) {
    series = fma(series, r, F8::all(factor));
  }
  const __m256i exponent = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n.v), _mm256_set1_epi32(127)), 23);
  return {_mm256_andnot_ps(gone, (series * F8{_mm256_castsi256_ps(exponent)}).v)};
}

// 2^x for x <= 127, within 2e-7 of it; exactly 1 at 0, exactly 0 from -127 down.
// x = n + r with |r| <= 1/2, 2^r by the polynomial of degree 5 that is closest relative to it, n added to its exponent.
inline F8 exp2(F8 x) {
  const F8 shifter = F8::all(12582912.0f);  // 1.5 * 2^23: a number added to it is rounded to whole ones
  const F8 bounded = max(F8::all(-127.0f), x);
  const F8 shifted = bounded + shifter;
  const F8 r = bounded - (shifted - shifter);
  F8 power = F8::all(1.326472725e-03f);
  for (const float factor : {9.671512688e-03f, 5.550733744e-02f, 2.402224208e-01f, 6.931469776e-01f, 1.0f}) {
    power = fma(power, r, F8::all(factor));
  }
  const __m256i exponent = _mm256_slli_epi32(_mm256_castps_si256(shifted.v), 23);
  return {_mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(power.v), exponent))};
}

// 2^x of one number, the same bits as in a vector.
inline float exp2_of(float x) { return _mm256_cvtss_f32(exp2(F8::all(x)).v); }

inline void prefetch(const void* at) { _mm_prefetch(static_cast<const char*>(at), _MM_HINT_T0); }

// e^x of one number, the same bits as in a vector.
inline float exp_of(float x) { return _mm256_cvtss_f32(exp(F8::all(x)).v); }

}  // namespace noria
