// The AVX-VNNI level's description. For x86-64-v3 + AVX-VNNI units only.
#pragma once

#include "ints8_avx2.h"

namespace noria {

struct Avx2Vnni : Avx2 {
  static I32x8 dot_bytes(I32x8 sum, I32x8 bytes, I32x8 signed_bytes) {
    return {_mm256_dpbusd_avx_epi32(sum.v, bytes.v, signed_bytes.v)};
  }
  static I32x8 dot_shorts(I32x8 sum, I32x8 a, I32x8 b) { return {_mm256_dpwssd_avx_epi32(sum.v, a.v, b.v)}; }
};

}  // namespace noria
