// Eight 32-bit integers in one AVX2 register, or so many bytes and shorts, and the AVX2 level's description. For
// x86-64-v3 units only.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "vec8.h"

namespace noria {

struct I32x8 {
  __m256i v;

  static I32x8 zero() { return {_mm256_setzero_si256()}; }
  static I32x8 all(int32_t x) { return {_mm256_set1_epi32(x)}; }
  static I32x8 all_shorts(int16_t x) { return {_mm256_set1_epi16(x)}; }
  // The 4 bytes there, in every lane.
  static I32x8 all_at(const void* at) {
    int32_t bits;
    std::memcpy(&bits, at, sizeof bits);
    return all(bits);
  }
  static I32x8 load(const uint8_t* at) { return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at))}; }
  F8 to_floats() const { return {_mm256_cvtepi32_ps(v)}; }
  // Each short moved down by so many bits, zeros above.
  template <int kBits>
  I32x8 shift_shorts() const {
    return {_mm256_srli_epi16(v, kBits)};
  }
  // Holds what made it where it stands: compilers put sums off until many products wait for them, in memory.
  void pin() { asm("" : "+x"(v)); }
};

inline I32x8 operator+(I32x8 a, I32x8 b) { return {_mm256_add_epi32(a.v, b.v)}; }
inline I32x8 operator&(I32x8 a, I32x8 b) { return {_mm256_and_si256(a.v, b.v)}; }
inline I32x8 add_shorts(I32x8 a, I32x8 b) { return {_mm256_add_epi16(a.v, b.v)}; }
inline I32x8 subtract_shorts(I32x8 a, I32x8 b) { return {_mm256_sub_epi16(a.v, b.v)}; }

// Products of 16-bit numbers, added in pairs: exact in 32 bits.
inline I32x8 multiply_pairs(I32x8 a, I32x8 b) { return {_mm256_madd_epi16(a.v, b.v)}; }

// Unsigned bytes times signed ones, added in pairs to 16-bit numbers: exact while |sum| < 2^15.
inline I32x8 multiply_byte_pairs(I32x8 bytes, I32x8 signed_bytes) {
  return {_mm256_maddubs_epi16(bytes.v, signed_bytes.v)};
}

// What gemm_ints.h and gemm_floats.h need to know of a level.
struct Avx2 {
  using Floats = F8;
  using Ints = I32x8;
  static constexpr int kLanes = 8;
  // Rows that go through so many tiles of integers together: with three the sums fit the registers.
  static constexpr int kManyRows = 4, kManyTiles = 1;
  // Up to so many rows unpack weights as they go, so many together.
  static constexpr int kFewRows = 4;
  static constexpr int kFewTileRows = 3;
  // Sums of a float product, and of one whose columns are widened, that stay in registers; rows that share a tile.
  static constexpr int kFloatSums = 12, kFloatRows = 6;
  static constexpr int kWidenedSums = 8, kWidenedRows = 4;

  static F8 halves(const uint8_t* at) { return load_f16(at); }
  // Of pairs of bfloat16, the first and the second.
  static F8 even_bf16(const uint8_t* at) { return {_mm256_castsi256_ps(_mm256_slli_epi32(I32x8::load(at).v, 16))}; }
  static F8 odd_bf16(const uint8_t* at) {
    return {_mm256_castsi256_ps((I32x8::load(at) & I32x8::all(int32_t(0xffff0000u))).v)};
  }
  static I32x8 dot_shorts(I32x8 sum, I32x8 a, I32x8 b) { return sum + multiply_pairs(a, b); }
  // Hides a vector from the optimiser, so that what made it is made.
  template <class Vector>
  static void keep(Vector& vector) {
    asm volatile("" : "+x"(vector.v));
  }
};

}  // namespace noria
