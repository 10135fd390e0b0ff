// How many rows and sums go together at levels of 16 lanes and 32 registers.
#pragma once

namespace noria {

struct WideRows {
  static constexpr int kLanes = 16;
  static constexpr int kManyRows = 6, kManyTiles = 2;
  static constexpr int kFewRows = 16;
  static constexpr int kFewTileRows = 8;
  static constexpr int kFloatSums = 16, kFloatRows = 8;
  static constexpr int kWidenedSums = 16, kWidenedRows = 8;
};

}  // namespace noria
