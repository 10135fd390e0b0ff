// Sixteen lanes of attention. For AVX-512 (F, BW, VL, DQ) units only.
#pragma once

#include "attention_lanes.h"
#include "ints16_avx512.h"

namespace noria {

struct Lanes16 {
  using Floats = F32x16;
  static constexpr int kEights = 2;

  template <class Make>
  [[gnu::always_inline]] static F32x16 of(Make make) {
    return {_mm512_insertf32x8(_mm512_castps256_ps512(make(0).v), make(1).v, 1)};
  }
  static F32x16 load(const float* at) { return F32x16::load(at); }
  static F32x16 halves(const uint16_t* at) { return Avx512Vnni::halves(reinterpret_cast<const uint8_t*>(at)); }
  static F32x16 codes(const int8_t* at) {
    return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at))))};
  }
};

}  // namespace noria
