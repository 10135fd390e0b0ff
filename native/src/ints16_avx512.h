// Sixteen floats, and sixteen 32-bit integers or so many bytes and shorts, in one AVX-512 register, and the level's
// description. For AVX-512 (F, BW, VL, DQ, VNNI) units only.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "wide_rows.h"

namespace noria {

struct F32x16 {
  __m512 v;

  static F32x16 load(const float* at) { return {_mm512_loadu_ps(at)}; }
  static F32x16 all(float x) { return {_mm512_set1_ps(x)}; }
  static F32x16 zero() { return {_mm512_setzero_ps()}; }
  void store(float* at) const { _mm512_storeu_ps(at, v); }
};

inline F32x16 operator*(F32x16 a, F32x16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline F32x16 fma(F32x16 a, F32x16 b, F32x16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }  // a * b + c

struct I32x16 {
  __m512i v;

  static I32x16 zero() { return {_mm512_setzero_si512()}; }
  static I32x16 all(int32_t x) { return {_mm512_set1_epi32(x)}; }
  static I32x16 all_shorts(int16_t x) { return {_mm512_set1_epi16(x)}; }
  // The 4 bytes there, in every lane.
  static I32x16 all_at(const void* at) {
    int32_t bits;
    std::memcpy(&bits, at, sizeof bits);
    return all(bits);
  }
  static I32x16 load(const uint8_t* at) { return {_mm512_loadu_si512(at)}; }
  F32x16 to_floats() const { return {_mm512_cvtepi32_ps(v)}; }
  // Each short moved down by so many bits, zeros above.
  template <int kBits>
  I32x16 shift_shorts() const {
    return {_mm512_srli_epi16(v, kBits)};
  }
  void pin() { asm("" : "+v"(v)); }
};

inline I32x16 operator&(I32x16 a, I32x16 b) { return {_mm512_and_si512(a.v, b.v)}; }
inline I32x16 subtract_shorts(I32x16 a, I32x16 b) { return {_mm512_sub_epi16(a.v, b.v)}; }
// Products of 16-bit numbers, added in pairs.
inline I32x16 multiply_pairs(I32x16 a, I32x16 b) { return {_mm512_madd_epi16(a.v, b.v)}; }

struct Avx512Vnni : WideRows {
  using Floats = F32x16;
  using Ints = I32x16;

  static F32x16 halves(const uint8_t* at) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)))};
  }
  static F32x16 even_bf16(const uint8_t* at) {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(I32x16::load(at).v, 16))};
  }
  static F32x16 odd_bf16(const uint8_t* at) {
    return {_mm512_castsi512_ps((I32x16::load(at) & I32x16::all(int32_t(0xffff0000u))).v)};
  }
  static I32x16 dot_bytes(I32x16 sum, I32x16 bytes, I32x16 signed_bytes) {
    return {_mm512_dpbusd_epi32(sum.v, bytes.v, signed_bytes.v)};
  }
  static I32x16 dot_shorts(I32x16 sum, I32x16 a, I32x16 b) { return {_mm512_dpwssd_epi32(sum.v, a.v, b.v)}; }
  // Hides a vector from the optimiser, so that what made it is made.
  template <class Vector>
  static void keep(Vector& vector) {
    asm volatile("" : "+v"(vector.v));
  }
};

}  // namespace noria
