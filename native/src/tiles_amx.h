// AMX's tiles, and the description of the level that has them. For AVX-512 (F, BW, VL, DQ, VNNI) units only, whose
// assembler knows AMX-TILE and AMX-INT8.
#pragma once

#include "gemm_tiles.h"
#include "ints16_avx512.h"

namespace noria {

// The shapes of tiles. While it lives, its thread's tiles are in use; none is before or after, so that nothing of them
// is saved when the system changes threads. By Intel's manual, volume 1, section 18.
class TileShapes {
 public:
  TileShapes() = default;
  ~TileShapes() { asm volatile("tilerelease"); }
  TileShapes(const TileShapes&) = delete;
  TileShapes& operator=(const TileShapes&) = delete;

  void set(int tile, int num_rows, int row_bytes) {
    shapes_.num_rows[tile] = uint8_t(num_rows);
    shapes_.row_bytes[tile] = uint16_t(row_bytes);
  }
  void use() const { asm volatile("ldtilecfg %0" : : "m"(shapes_) : "memory"); }

 private:
  // What ldtilecfg reads.
  struct alignas(64) {
    uint8_t palette = 1;
    uint8_t start_row = 0;
    uint8_t unused[14] = {};
    uint16_t row_bytes[16] = {};
    uint8_t num_rows[16] = {};
  } shapes_;
  static_assert(sizeof(shapes_) == 64);
};

// Tile 0 holds sums and 2 rows, kMatrixRows each; 1 and 3 those of what is left; 4 weights.
class AmxTiles {
 public:
  // row_bytes: of a row in a group, a multiple of 4 up to 64. rest: 0 up to less than kMatrixRows.
  AmxTiles(int row_bytes, int rest) {
    shapes_.set(0, kMatrixRows, kLineBytes);
    shapes_.set(2, kMatrixRows, row_bytes);
    shapes_.set(4, row_bytes / 4, kLineBytes);
    if (rest > 0) {
      shapes_.set(1, rest, kLineBytes);
      shapes_.set(3, rest, row_bytes);
    }
    shapes_.use();
  }

  // Rows of signed bytes, `stride` bytes apart, times unsigned lines [row_bytes / 4][16 columns][4] -> sums. kWhole:
  // kMatrixRows of them, else the rest.
  template <bool kWhole>
  void multiply(const int8_t* rows, int64_t stride, const I32x16* lines,
                int32_t (&sums)[kMatrixRows][kTileColumns]) const {
    constexpr int kSums = kWhole ? 0 : 1, kRowTile = kWhole ? 2 : 3, kLines = 4;
    asm volatile("tilezero %%tmm%c0" : : "i"(kSums));
    load<kRowTile>(rows, stride);
    load<kLines>(lines, kLineBytes);
    asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSums), "i"(kRowTile), "i"(kLines));
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(sums), "r"(int64_t{kLineBytes}), "i"(kSums) : "memory");
  }

 private:
  template <int kTile>
  static void load(const void* data, int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(data), "r"(stride), "i"(kTile) : "memory");
  }

  TileShapes shapes_;
};

struct Avx512Amx : Avx512Vnni {
  using Tiles = AmxTiles;
};

}  // namespace noria
