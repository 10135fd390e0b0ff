// Vectors that attention takes its keys and values in: eight lanes, and twice as many. What a lane becomes depends on
// no other, so their number changes no bit. For x86-64-v3 units and above.
#pragma once

#include "vec8.h"

namespace noria {

// kEights: how many F8 a vector is. of(make): of make(0), make(1), ... one behind the other. load, halves and codes:
// numbers that lie so.
struct Lanes8 {
  using Floats = F8;
  static constexpr int kEights = 1;

  template <class Make>
  [[gnu::always_inline]] static F8 of(Make make) {
    return make(0);
  }
  static F8 load(const float* at) { return F8::load(at); }
  static F8 halves(const uint16_t* at) { return load_f16(reinterpret_cast<const uint8_t*>(at)); }
  static F8 codes(const int8_t* at) {
    return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(at))))};
  }
};

}  // namespace noria
