// Weights in float32, float16 and bfloat16: one fused multiply-add a product, k ascending, float32 sums, so the same
// bits at every level. Isa is what ints8_avx2.h describes, or another level's.
#pragma once

#include "gemm_table.h"

namespace noria {

// kTiles adjacent tiles for kRows rows; the sums, kRows x kVectors, stay in registers.
template <class Isa, class Number>
struct Singles {
  using Floats = typename Isa::Floats;
  static constexpr int kSums = Isa::kFloatSums;
  static constexpr int kMaxRows = Isa::kFloatRows;

  template <int kRows, int kVectors>
  static void sum(const PackedLinear& weight, const uint8_t* tile, const float* x, int64_t stride,
                  Floats (&sums)[kRows][kVectors]) {
    constexpr int kParts = kTileColumns / Isa::kLanes;
    const size_t tile_bytes = weight.tile_bytes();
    for (int64_t k = 0; k < weight.k; ++k, tile += kTileColumns * Number::kBytes) {
      Floats columns[kVectors];
      for (int c = 0; c < kVectors; ++c) {
        columns[c] = Number::load(tile + c / kParts * tile_bytes + c % kParts * Isa::kLanes * Number::kBytes);
      }
      for (int r = 0; r < kRows; ++r) {
        const Floats activation = Floats::all(x[r * stride + k]);
        for (int c = 0; c < kVectors; ++c) sums[r][c] = fma(activation, columns[c], sums[r][c]);
      }
    }
  }
};

template <class Isa>
struct F32 {
  static constexpr int kBytes = 4;
  static auto load(const uint8_t* at) { return Isa::Floats::load(reinterpret_cast<const float*>(at)); }
};

template <class Isa>
struct F16 {
  static constexpr int kBytes = 2;
  static auto load(const uint8_t* at) { return Isa::halves(at); }
};

template <class Isa>
struct Bf16 {
  using Floats = typename Isa::Floats;
  static constexpr int kSums = Isa::kWidenedSums;  // widened columns need registers too
  static constexpr int kMaxRows = Isa::kWidenedRows;

  template <int kRows, int kVectors, Floats (*widen)(const uint8_t*)>
  static void add(const uint8_t* line, size_t tile_bytes, const float* x, int64_t stride,
                  Floats (&sums)[kRows][kVectors]) {
    constexpr int kParts = kTileColumns / Isa::kLanes;
    Floats columns[kVectors];
    for (int c = 0; c < kVectors; ++c) {
      columns[c] = widen(line + c / kParts * tile_bytes + c % kParts * Isa::kLanes * 4);
    }
    for (int r = 0; r < kRows; ++r) {
      const Floats activation = Floats::all(x[r * stride]);
      for (int c = 0; c < kVectors; ++c) sums[r][c] = fma(activation, columns[c], sums[r][c]);
    }
  }

  template <int kRows, int kVectors>
  static void sum(const PackedLinear& weight, const uint8_t* tile, const float* x, int64_t stride,
                  Floats (&sums)[kRows][kVectors]) {
    const size_t tile_bytes = weight.tile_bytes();
    for (int64_t pair = 0; pair < weight.k / 2; ++pair, tile += kLineBytes, x += 2) {
      add<kRows, kVectors, Isa::even_bf16>(tile, tile_bytes, x, stride, sums);
      add<kRows, kVectors, Isa::odd_bf16>(tile, tile_bytes, x + 1, stride, sums);
    }
    if (weight.k % 2 != 0) add<kRows, kVectors, Isa::even_bf16>(tile, tile_bytes, x, stride, sums);
  }
};

// Few rows take more tiles, since a sum waits for the one before it.
constexpr int tiles_of(int num_rows, int num_parts, int max_sums) {
  int tiles = kPanelTiles;
  while (tiles > 1 && num_rows * num_parts * tiles > max_sums) tiles /= 2;
  return tiles;
}

template <class Isa, class Kind, int kRows>
void run_float_tiles(const PackedLinear& weight, const uint8_t* panel, const FloatRows& x, int64_t row, float* out) {
  using Floats = typename Isa::Floats;
  constexpr int kParts = kTileColumns / Isa::kLanes;
  constexpr int kTiles = tiles_of(kRows, kParts, Kind::kSums);
  constexpr int kVectors = kTiles * kParts;
  for (int t = 0; t < kPanelTiles; t += kTiles) {
    Floats sums[kRows][kVectors];
    for (auto& columns : sums) {
      for (Floats& column : columns) column = Floats::zero();
    }
    const uint8_t* tile = panel + t * weight.tile_bytes();
    Kind::template sum<kRows, kVectors>(weight, tile, x.data + row * x.stride, x.stride, sums);
    for (int r = 0; r < kRows; ++r) {
      for (int c = 0; c < kVectors; ++c) {
        sums[r][c].store(out + r * kPanelColumns + t * kTileColumns + c * Isa::kLanes);
      }
    }
  }
}

// Rows [row, end) by kRows, and what is left by fewer.
template <class Isa, class Kind, int kRows>
void run_float_rows(const PackedLinear& weight, const uint8_t* panel, const FloatRows& x, int64_t row, int64_t end,
                    float* out) {
  for (; row + kRows <= end; row += kRows, out += kRows * kPanelColumns) {
    run_float_tiles<Isa, Kind, kRows>(weight, panel, x, row, out);
  }
  if constexpr (kRows > 1) run_float_rows<Isa, Kind, kRows - 1>(weight, panel, x, row, end, out);
}

template <class Isa, class Kind>
void run_floats(const PackedLinear& weight, const uint8_t* panel, const Activations& x, int64_t begin, int64_t end,
                float* out) {
  run_float_rows<Isa, Kind, Kind::kMaxRows>(weight, panel, x.floats, begin, end, out);
}

}  // namespace noria
