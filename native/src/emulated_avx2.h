// The levels that not every machine has, spelt out in AVX2: their kernels run anywhere, but for the vector types and
// the dot instructions themselves. They are what a level is held against. For x86-64-v3 units only.
#pragma once

#include "ints8_avx2.h"
#include "wide_rows.h"

namespace noria {

// Unsigned times signed, the four products of a lane added to it.
inline I32x8 emulated_dot_bytes(I32x8 sum, I32x8 bytes, I32x8 signed_bytes) {
  const I32x8 even{_mm256_srai_epi16(_mm256_slli_epi16(signed_bytes.v, 8), 8)};
  const I32x8 odd{_mm256_srai_epi16(signed_bytes.v, 8)};
  return sum + multiply_pairs(bytes & I32x8::all_shorts(0xff), even) + multiply_pairs(bytes.shift_shorts<8>(), odd);
}

struct EmulatedVnni : Avx2 {
  static I32x8 dot_bytes(I32x8 sum, I32x8 bytes, I32x8 signed_bytes) {
    return emulated_dot_bytes(sum, bytes, signed_bytes);
  }
};

// Sixteen of each, in two registers.
struct F8x2 {
  F8 low, high;

  static F8x2 load(const float* at) { return {F8::load(at), F8::load(at + 8)}; }
  static F8x2 all(float x) { return {F8::all(x), F8::all(x)}; }
  static F8x2 zero() { return all(0); }
  void store(float* at) const {
    low.store(at);
    high.store(at + 8);
  }
};

inline F8x2 operator*(F8x2 a, F8x2 b) { return {a.low * b.low, a.high * b.high}; }
inline F8x2 fma(F8x2 a, F8x2 b, F8x2 c) { return {fma(a.low, b.low, c.low), fma(a.high, b.high, c.high)}; }

struct I32x8x2 {
  I32x8 low, high;

  static I32x8x2 zero() { return all(0); }
  static I32x8x2 all(int32_t x) { return {I32x8::all(x), I32x8::all(x)}; }
  static I32x8x2 all_shorts(int16_t x) { return {I32x8::all_shorts(x), I32x8::all_shorts(x)}; }
  static I32x8x2 all_at(const void* at) { return {I32x8::all_at(at), I32x8::all_at(at)}; }
  static I32x8x2 load(const uint8_t* at) { return {I32x8::load(at), I32x8::load(at + 32)}; }
  F8x2 to_floats() const { return {low.to_floats(), high.to_floats()}; }
  template <int kBits>
  I32x8x2 shift_shorts() const {
    return {low.shift_shorts<kBits>(), high.shift_shorts<kBits>()};
  }
  void pin() {
    low.pin();
    high.pin();
  }
};

inline I32x8x2 operator&(I32x8x2 a, I32x8x2 b) { return {a.low & b.low, a.high & b.high}; }
inline I32x8x2 subtract_shorts(I32x8x2 a, I32x8x2 b) {
  return {subtract_shorts(a.low, b.low), subtract_shorts(a.high, b.high)};
}
inline I32x8x2 multiply_pairs(I32x8x2 a, I32x8x2 b) {
  return {multiply_pairs(a.low, b.low), multiply_pairs(a.high, b.high)};
}

struct Emulated512 : WideRows {
  using Floats = F8x2;
  using Ints = I32x8x2;

  static F8x2 halves(const uint8_t* at) { return {Avx2::halves(at), Avx2::halves(at + 16)}; }
  static F8x2 even_bf16(const uint8_t* at) { return {Avx2::even_bf16(at), Avx2::even_bf16(at + 32)}; }
  static F8x2 odd_bf16(const uint8_t* at) { return {Avx2::odd_bf16(at), Avx2::odd_bf16(at + 32)}; }
  static I32x8x2 dot_bytes(I32x8x2 sum, I32x8x2 bytes, I32x8x2 signed_bytes) {
    return {emulated_dot_bytes(sum.low, bytes.low, signed_bytes.low),
            emulated_dot_bytes(sum.high, bytes.high, signed_bytes.high)};
  }
  static I32x8x2 dot_shorts(I32x8x2 sum, I32x8x2 a, I32x8x2 b) {
    return {Avx2::dot_shorts(sum.low, a.low, b.low), Avx2::dot_shorts(sum.high, a.high, b.high)};
  }
};

}  // namespace noria
