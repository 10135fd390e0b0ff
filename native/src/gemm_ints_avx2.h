// Products of integers, and how a group's sums join a row's totals. For x86-64-v3 units only.
//
// A step is what 4 bytes of a row hold: 4 numbers of k in bytes, 2 in shorts. A group's weights are two vectors a
// step, 8 columns each, in the form that the step multiplies. Many rows unpack them once into memory that the first
// caches hold; few rows unpack as they go.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "gemm_table.h"
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
};

inline I32x8 operator+(I32x8 a, I32x8 b) { return {_mm256_add_epi32(a.v, b.v)}; }
inline I32x8 operator&(I32x8 a, I32x8 b) { return {_mm256_and_si256(a.v, b.v)}; }
inline I32x8 add_shorts(I32x8 a, I32x8 b) { return {_mm256_add_epi16(a.v, b.v)}; }
inline I32x8 subtract_shorts(I32x8 a, I32x8 b) { return {_mm256_sub_epi16(a.v, b.v)}; }
// Each short moved down by so many bits, zeros above.
template <int kBits>
I32x8 shift_shorts(I32x8 x) {
  return {_mm256_srli_epi16(x.v, kBits)};
}

// Products of 16-bit numbers, added in pairs: exact in 32 bits.
inline I32x8 multiply_pairs(I32x8 a, I32x8 b) { return {_mm256_madd_epi16(a.v, b.v)}; }

// Unsigned bytes times signed ones, added in pairs to 16-bit numbers: exact while |sum| < 2^15.
inline I32x8 multiply_byte_pairs(I32x8 bytes, I32x8 signed_bytes) {
  return {_mm256_maddubs_epi16(bytes.v, signed_bytes.v)};
}

// Holds an addition where it stands: compilers put sums off until many products wait for them, in memory.
inline void pin(I32x8& sum) { asm("" : "+x"(sum.v)); }

// A single row passes over weights once, from memory: they are fetched so far ahead, whatever tile they belong to.
constexpr int kPrefetchBytes = 2048;
inline void prefetch(const uint8_t* at) { _mm_prefetch(reinterpret_cast<const char*>(at), _MM_HINT_T0); }

// What a group's integers lack of its products.
enum class Lack {
  kNothing,  // they are of code - zero
  kZero,     // they are of codes; zero * the row's sum is to be taken off
  kMinima,   // they are of codes; minimum * the row's sum is to be added
};

// Scales and minima of 16 columns in one group.
template <bool kMinima>
struct Scales {
  F8 scales[2];
  F8 minima[kMinima ? 2 : 1];

  // codes: where the group begins.
  void load(const WeightFormat& format, const uint8_t* codes) {
    const uint8_t* at = codes + format.group_code_bytes();
    const int half = 8 * format.scale_bytes();
    for (int c = 0; c < 2; ++c) {
      scales[c] = floats_at(format, at + c * half);
      if constexpr (kMinima) minima[c] = floats_at(format, at + (2 + c) * half);
    }
  }

  static F8 floats_at(const WeightFormat& format, const uint8_t* at) {
    if (format.scales == ScaleKind::kF32) return F8::load(reinterpret_cast<const float*>(at));
    return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)))};
  }
};

// Adds one row's integers of a group, 16 columns of them, to its totals.
template <int kGroup, Lack kLack>
void add_group(const QuantRows& x, int64_t row, int64_t group, const Scales<kLack == Lack::kMinima>& scales,
               F8 minus_zero, const I32x8 (&sums)[2], F8 (&totals)[2]) {
  const F8 row_scale = F8::all(x.scales[row * (x.k / kScaleGroup) + group * kGroup / kScaleGroup]);
  if constexpr (kLack == Lack::kNothing) {
    for (int c = 0; c < 2; ++c) totals[c] = fma(sums[c].to_floats() * row_scale, scales.scales[c], totals[c]);
  } else {
    const float* row_sums = kGroup == kScaleGroup ? x.sums32 : x.sums16;
    const F8 row_sum = F8::all(row_sums[row * (x.k / kGroup) + group]);
    if constexpr (kLack == Lack::kMinima) {
      for (int c = 0; c < 2; ++c) {
        totals[c] = fma(sums[c].to_floats() * row_scale, scales.scales[c], totals[c]);
        totals[c] = fma(scales.minima[c], row_sum, totals[c]);
      }
    } else {
      const F8 offset = row_sum * minus_zero;
      for (int c = 0; c < 2; ++c) {
        totals[c] = fma(fma(sums[c].to_floats(), row_scale, offset), scales.scales[c], totals[c]);
      }
    }
  }
}

// A group's weights: unpacked as they are asked for, or in memory.
template <class Kernel>
struct PackedGroup {
  const Kernel& kernel;
  const uint8_t* codes;
  I32x8 at(int step, int half) const { return kernel.unpack(codes, step, half); }
};

struct UnpackedGroup {
  const I32x8* vectors;
  I32x8 at(int step, int half) const { return vectors[step * 2 + half]; }
};

// Rows that go through a tile together: with three the sums fit the registers.
constexpr int kMaxRows = 4;
// So few rows unpack as they go: three, or twice two.
constexpr int64_t kFewRows = 4;
// Groups that are unpacked together, [kSegmentGroups][steps][2] vectors: 12 KB in bytes, 24 KB in shorts.
constexpr int kSegmentGroups = 24;

// A kernel says how integers are multiplied:
//   Item: int8_t or int16_t, what rows hold; items(x): where
//   kLack: for a format without minima
//   kCodesAStep: numbers of k in a step
//   unpack(codes, step, half): one vector of a group's weights
//   sum<kSteps, kRows>(group, x, stride, sums): a group's products, in 32 bits
//
// This runs them over one tile for one form of weights.
template <class Kernel, int kGroup, bool kMinima>
class TileRun {
 public:
  TileRun(const PackedLinear& weight, const QuantRows& x)
      : weight_(weight), x_(x), kernel_(weight.format), minus_zero_(F8::all(-float(weight.format.zero))) {}

  // Rows [begin, end) times a tile -> out, a row kPanelColumns after the one before.
  void run(const uint8_t* tile, int64_t begin, int64_t end, float* out) const {
    if (end - begin > kFewRows) return run_many(tile, begin, end, out);
    switch (end - begin) {
      case 1: return run_few<1>(tile, begin, out);
      case 2: return run_few<2>(tile, begin, out);
      case 3: return run_few<3>(tile, begin, out);
      case 4: run_few<2>(tile, begin, out); return run_few<2>(tile, begin + 2, out + 2 * kPanelColumns);
      default: return;
    }
  }

 private:
  static constexpr Lack kLack = kMinima ? Lack::kMinima : Kernel::kLack;
  static constexpr int kSteps = kGroup / Kernel::kCodesAStep;

  struct Segment {
    int64_t first;  // group
    int64_t size;
    alignas(32) I32x8 vectors[kSegmentGroups][kSteps * 2];
    Scales<kMinima> scales[kSegmentGroups];
  };

  template <int kRows>
  void run_few(const uint8_t* tile, int64_t row, float* out) const {
    F8 totals[kRows][2];
    for (auto& both : totals) both[0] = both[1] = F8::zero();
    Scales<kMinima> scales;
    const int64_t num_groups = weight_.num_groups(), stride = weight_.format.group_bytes();
    const auto* items = kernel_.items(x_) + row * x_.k;
    for (int64_t g = 0; g < num_groups; ++g, tile += stride) {
      if constexpr (kRows == 1) {
        for (int64_t at = 0; at < stride; at += kLineBytes) prefetch(tile + kPrefetchBytes + at);
      }
      I32x8 sums[kRows][2];
      kernel_.template sum<kSteps>(PackedGroup<Kernel>{kernel_, tile}, items + g * kGroup, x_.k, sums);
      scales.load(weight_.format, tile);
      for (int r = 0; r < kRows; ++r) {
        add_group<kGroup, kLack>(x_, row + r, g, scales, minus_zero_, sums[r], totals[r]);
      }
    }
    store(totals, out);
  }

  void run_many(const uint8_t* tile, int64_t begin, int64_t end, float* out) const {
    Segment segment;
    const int64_t num_groups = weight_.num_groups();
    for (segment.first = 0; segment.first < num_groups; segment.first += segment.size) {
      segment.size = std::min<int64_t>(kSegmentGroups, num_groups - segment.first);
      unpack(tile, segment);
      int64_t row = begin;
      float* at = out;
      for (; row + kMaxRows <= end; row += kMaxRows, at += kMaxRows * kPanelColumns) {
        run_segment<kMaxRows>(segment, row, at);
      }
      if (end - row == 3) run_segment<3>(segment, row, at);
      if (end - row == 2) run_segment<2>(segment, row, at);
      if (end - row == 1) run_segment<1>(segment, row, at);
    }
  }

  void unpack(const uint8_t* tile, Segment& segment) const {
    const int64_t stride = weight_.format.group_bytes();
    for (int64_t i = 0; i < segment.size; ++i) {
      const uint8_t* codes = tile + (segment.first + i) * stride;
#pragma GCC unroll 16
      for (int step = 0; step < kSteps; ++step) {
        for (int half = 0; half < 2; ++half) segment.vectors[i][step * 2 + half] = kernel_.unpack(codes, step, half);
      }
      segment.scales[i].load(weight_.format, codes);
    }
  }

  template <int kRows>
  void run_segment(const Segment& segment, int64_t row, float* out) const {
    F8 totals[kRows][2];
    for (int r = 0; r < kRows; ++r) {
      for (int c = 0; c < 2; ++c) {
        totals[r][c] = segment.first == 0 ? F8::zero() : F8::load(out + r * kPanelColumns + c * 8);
      }
    }
    const auto* items = kernel_.items(x_) + row * x_.k + segment.first * kGroup;
    for (int64_t i = 0; i < segment.size; ++i) {
      I32x8 sums[kRows][2];
      kernel_.template sum<kSteps>(UnpackedGroup{segment.vectors[i]}, items + i * kGroup, x_.k, sums);
      for (int r = 0; r < kRows; ++r) {
        add_group<kGroup, kLack>(x_, row + r, segment.first + i, segment.scales[i], minus_zero_, sums[r], totals[r]);
      }
    }
    store(totals, out);
  }

  template <int kRows>
  static void store(const F8 (&totals)[kRows][2], float* out) {
    for (int r = 0; r < kRows; ++r) {
      for (int c = 0; c < 2; ++c) totals[r][c].store(out + r * kPanelColumns + c * 8);
    }
  }

  const PackedLinear& weight_;
  const QuantRows& x_;
  const Kernel kernel_;
  const F8 minus_zero_;
};

// The panel's tiles, the format's group and minima made constants.
template <class Kernel>
void run_quantised(const PackedLinear& weight, const uint8_t* panel, const Activations& x, int64_t begin, int64_t end,
                   float* out) {
  const auto run_tiles = [&](const auto& run) {
    for (int t = 0; t < kPanelTiles; ++t) run.run(panel + t * weight.tile_bytes(), begin, end, out + t * kTileColumns);
  };
  const bool has_minima = weight.format.has_minima;
  if (weight.format.group == 32) {
    if (has_minima) return run_tiles(TileRun<Kernel, 32, true>(weight, x.quants));
    return run_tiles(TileRun<Kernel, 32, false>(weight, x.quants));
  }
  if (has_minima) return run_tiles(TileRun<Kernel, 16, true>(weight, x.quants));
  run_tiles(TileRun<Kernel, 16, false>(weight, x.quants));
}

// Steps of shorts: both are widened to 16 bits and summed in 32.
struct ShortSteps {
  using Item = int16_t;
  static constexpr Lack kLack = Lack::kNothing;
  static constexpr int kCodesAStep = 2;
  static const int16_t* items(const QuantRows& x) { return x.shorts; }

  template <int kSteps, class Group, int kRows>
  static void sum(const Group& group, const int16_t* x, int64_t stride, I32x8 (&sums)[kRows][2]) {
#pragma GCC unroll 16
    for (int step = 0; step < kSteps; ++step) {
      const I32x8 weights[2] = {group.at(step, 0), group.at(step, 1)};
      for (int r = 0; r < kRows; ++r) {
        const I32x8 both = I32x8::all_at(x + r * stride + step * 2);
        for (int c = 0; c < 2; ++c) {
          const I32x8 product = multiply_pairs(weights[c], both);
          sums[r][c] = step == 0 ? product : sums[r][c] + product;
          pin(sums[r][c]);
        }
      }
    }
  }
};

}  // namespace noria
