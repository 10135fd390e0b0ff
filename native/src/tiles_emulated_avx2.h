// AMX's tiles, spelt out in AVX2, and the level over them in AVX2. For x86-64-v3 units only.
#pragma once

#include <cstring>

#include "emulated_avx2.h"
#include "gemm_tiles.h"

namespace noria {

class EmulatedTiles {
 public:
  EmulatedTiles(int row_bytes, int rest) : row_bytes_(row_bytes), rest_(rest) {}

  template <bool kWhole>
  void multiply(const int8_t* rows, int64_t stride, const I32x8x2* lines,
                int32_t (&sums)[kMatrixRows][kTileColumns]) const {
    for (int r = 0; r < (kWhole ? kMatrixRows : rest_); ++r) {
      I32x8x2 sum = I32x8x2::zero();
      for (int i = 0; i < row_bytes_ / 4; ++i) {
        sum = Emulated512::dot_bytes(sum, lines[i], I32x8x2::all_at(rows + r * stride + i * 4));
      }
      std::memcpy(sums[r], &sum, sizeof sums[r]);
    }
  }

 private:
  const int row_bytes_;
  const int rest_;
};

struct EmulatedAmx : Emulated512 {
  using Tiles = EmulatedTiles;
};

}  // namespace noria
