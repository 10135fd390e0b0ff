// Weights in float32, float16 and bfloat16: one fused multiply-add a product, k ascending, float32 sums.
#include <immintrin.h>

#include "gemm_table.h"
#include "vec8.h"

namespace noria {
namespace {

// kTiles adjacent tiles for kRows rows; 2 * kTiles * kRows sums stay in registers. Few rows take more tiles, since
// a sum waits for the one before it.
template <class Number>
struct Singles {
  static constexpr int kMaxRows = 6;
  static constexpr int kTilesOfThree = 2;

  template <int kRows, int kTiles>
  static void sum(const PackedLinear& weight, const uint8_t* tile, const float* x, int64_t stride,
                  F8 (&sums)[kRows][2 * kTiles]) {
    const size_t tile_bytes = weight.tile_bytes();
    for (int64_t k = 0; k < weight.k; ++k, tile += kTileColumns * Number::kBytes) {
      F8 columns[2 * kTiles];
      for (int c = 0; c < 2 * kTiles; ++c) {
        columns[c] = Number::load(tile + c / 2 * tile_bytes + c % 2 * 8 * Number::kBytes);
      }
      for (int r = 0; r < kRows; ++r) {
        const F8 activation = F8::all(x[r * stride + k]);
        for (int c = 0; c < 2 * kTiles; ++c) sums[r][c] = fma(activation, columns[c], sums[r][c]);
      }
    }
  }
};

struct F32 {
  static constexpr int kBytes = 4;
  static F8 load(const uint8_t* at) { return F8::load(reinterpret_cast<const float*>(at)); }
};

struct F16 {
  static constexpr int kBytes = 2;
  static F8 load(const uint8_t* at) { return load_f16(at); }
};

struct Bf16 {
  static constexpr int kMaxRows = 4;  // widened columns need registers too
  static constexpr int kTilesOfThree = 1;

  static F8 even(__m256i pairs) { return {_mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16))}; }
  static F8 odd(__m256i pairs) {
    return {_mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(int(0xffff0000u))))};
  }

  template <int kRows, int kTiles, F8 (*widen)(__m256i)>
  static void add(const uint8_t* line, size_t tile_bytes, const float* x, int64_t stride,
                  F8 (&sums)[kRows][2 * kTiles]) {
    F8 columns[2 * kTiles];
    for (int c = 0; c < 2 * kTiles; ++c) {
      const uint8_t* at = line + c / 2 * tile_bytes + c % 2 * 32;
      columns[c] = widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
    }
    for (int r = 0; r < kRows; ++r) {
      const F8 activation = F8::all(x[r * stride]);
      for (int c = 0; c < 2 * kTiles; ++c) sums[r][c] = fma(activation, columns[c], sums[r][c]);
    }
  }

  template <int kRows, int kTiles>
  static void sum(const PackedLinear& weight, const uint8_t* tile, const float* x, int64_t stride,
                  F8 (&sums)[kRows][2 * kTiles]) {
    const size_t tile_bytes = weight.tile_bytes();
    for (int64_t pair = 0; pair < weight.k / 2; ++pair, tile += kLineBytes, x += 2) {
      add<kRows, kTiles, even>(tile, tile_bytes, x, stride, sums);
      add<kRows, kTiles, odd>(tile, tile_bytes, x + 1, stride, sums);
    }
    if (weight.k % 2 != 0) add<kRows, kTiles, even>(tile, tile_bytes, x, stride, sums);
  }
};

template <class Kind, int kRows, int kTiles>
void run_tiles(const PackedLinear& weight, const uint8_t* panel, const FloatRows& x, int64_t row, float* out) {
  for (int t = 0; t < kPanelTiles; t += kTiles) {
    F8 sums[kRows][2 * kTiles];
    for (auto& columns : sums) {
      for (F8& column : columns) column = F8::zero();
    }
    const uint8_t* tile = panel + t * weight.tile_bytes();
    Kind::template sum<kRows, kTiles>(weight, tile, x.data + row * x.stride, x.stride, sums);
    for (int r = 0; r < kRows; ++r) {
      for (int c = 0; c < 2 * kTiles; ++c) sums[r][c].store(out + r * kPanelColumns + t * kTileColumns + c * 8);
    }
  }
}

template <class Kind>
void run_panel(const PackedLinear& weight, const uint8_t* panel, const FloatRows& x, int64_t begin, int64_t end,
               float* out) {
  int64_t row = begin;
  for (; end - row >= Kind::kMaxRows; row += Kind::kMaxRows) {
    run_tiles<Kind, Kind::kMaxRows, 1>(weight, panel, x, row, out + (row - begin) * kPanelColumns);
  }
  out += (row - begin) * kPanelColumns;
  switch (end - row) {
    case 5: return run_tiles<Kind, 5, 1>(weight, panel, x, row, out);
    case 4: return run_tiles<Kind, 4, 1>(weight, panel, x, row, out);
    case 3: return run_tiles<Kind, 3, Kind::kTilesOfThree>(weight, panel, x, row, out);
    case 2: return run_tiles<Kind, 2, 2>(weight, panel, x, row, out);
    case 1: return run_tiles<Kind, 1, 4>(weight, panel, x, row, out);
    default: return;
  }
}

}  // namespace

void f32_panel_avx2(const PackedLinear& weight, const uint8_t* panel, const Activations& x, int64_t begin,
                    int64_t end, float* out) {
  run_panel<Singles<F32>>(weight, panel, x.floats, begin, end, out);
}

void f16_panel_avx2(const PackedLinear& weight, const uint8_t* panel, const Activations& x, int64_t begin,
                    int64_t end, float* out) {
  run_panel<Singles<F16>>(weight, panel, x.floats, begin, end, out);
}

void bf16_panel_avx2(const PackedLinear& weight, const uint8_t* panel, const Activations& x, int64_t begin,
                     int64_t end, float* out) {
  run_panel<Bf16>(weight, panel, x.floats, begin, end, out);
}

}  // namespace noria
