// Vectors of integers for the quantised kernels, and what a group's sums become. For x86-64-v3 units only.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "gemm_table.h"
#include "vec8.h"

namespace noria {

struct I32x8 {
  __m256i v;

  static I32x8 zero() { return {_mm256_setzero_si256()}; }
  static I32x8 all(int32_t x) { return {_mm256_set1_epi32(x)}; }
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
inline I32x8 operator-(I32x8 a, I32x8 b) { return {_mm256_sub_epi32(a.v, b.v)}; }
inline I32x8 operator&(I32x8 a, I32x8 b) { return {_mm256_and_si256(a.v, b.v)}; }

// Products of 16-bit numbers, added in pairs: exact in 32 bits.
inline I32x8 multiply_pairs(I32x8 a, I32x8 b) { return {_mm256_madd_epi16(a.v, b.v)}; }

// Unsigned bytes times signed ones, added in pairs to 16-bit numbers: exact while |sum| < 2^15.
inline I32x8 multiply_byte_pairs(I32x8 bytes, I32x8 signed_bytes) {
  return {_mm256_maddubs_epi16(bytes.v, signed_bytes.v)};
}
inline I32x8 add_shorts(I32x8 a, I32x8 b) { return {_mm256_add_epi16(a.v, b.v)}; }

// Holds an addition where it stands: compilers put sums off until many products wait for them, in memory.
inline void pin(I32x8& sum) { asm("" : "+x"(sum.v)); }

// Scales, minima and the zero of a tile's groups, whichever way they are stored.
template <int kGroup, bool kMinima>
class GroupScales {
 public:
  explicit GroupScales(const WeightFormat& format)
      : format_(format), zero_shift_(_mm_cvtsi32_si128(kMinima ? 0 : __builtin_ctz(format.zero))) {}

  // codes: where the group begins.
  void load(const uint8_t* codes) {
    const uint8_t* at = codes + format_.group_code_bytes();
    const int half = 8 * format_.scale_bytes();
    for (int c = 0; c < 2; ++c) {
      scales_[c] = floats_at(at + c * half);
      if (kMinima) minima_[c] = floats_at(at + (2 + c) * half);
    }
  }

  // Adds one row's products with the group, 16 columns of them, to its totals.
  void add(const QuantRows& x, int64_t row, int64_t group, const I32x8 (&products)[2], F8 (&totals)[2]) const {
    const int64_t scale_at = row * (x.k / kScaleGroup) + group * kGroup / kScaleGroup;
    const F8 row_scale = F8::all(x.scales[scale_at]);
    const int32_t* sums = kGroup == kScaleGroup ? x.sums32 : x.sums16;
    const I32x8 sum = I32x8::all(sums[row * (x.k / kGroup) + group]);
    const I32x8 zeros{_mm256_sll_epi32(sum.v, zero_shift_)};
    for (int c = 0; c < 2; ++c) {
      const I32x8 exact = kMinima ? products[c] : products[c] - zeros;
      totals[c] = fma(exact.to_floats() * scales_[c], row_scale, totals[c]);
      if (kMinima) totals[c] = fma(minima_[c], sum.to_floats() * row_scale, totals[c]);
    }
  }

 private:
  F8 floats_at(const uint8_t* at) const {
    if (format_.scales == ScaleKind::kF32) return F8::load(reinterpret_cast<const float*>(at));
    return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)))};
  }

  const WeightFormat format_;
  const __m128i zero_shift_;
  F8 scales_[2];
  F8 minima_[2];
};

// A single row passes over weights once, from memory: they are fetched so far ahead, whatever tile they belong to.
constexpr int kPrefetchBytes = 2048;
inline void prefetch(const uint8_t* at) { _mm_prefetch(reinterpret_cast<const char*>(at), _MM_HINT_T0); }

// Rows that go through a tile together: with three the sums fit the registers. Four are better as two and two.
constexpr int kMaxRows = 3;
inline int rows_at_once(int64_t left) { return left == 4 ? 2 : left < kMaxRows ? int(left) : kMaxRows; }

// kRows rows of x times 16 columns. Sums says how a group is summed:
//   rows(x): the form of the activations that it takes
//   sum<kGroup, kRows>(codes, x, stride, sums): the products of a group, in 32 bits
template <class Sums, int kGroup, bool kMinima, int kRows>
void run_tile(const PackedLinear& weight, const uint8_t* tile, const QuantRows& x, int64_t row, float* out) {
  GroupScales<kGroup, kMinima> scales(weight.format);
  F8 totals[kRows][2];
  for (int r = 0; r < kRows; ++r) totals[r][0] = totals[r][1] = F8::zero();
  const auto* activations = Sums::rows(x) + row * x.k;
  const int64_t num_groups = weight.num_groups();
  for (int64_t g = 0; g < num_groups; ++g) {
    I32x8 sums[kRows][2];
    Sums::template sum<kGroup, kRows>(tile, activations, x.k, sums);
    scales.load(tile);
    for (int r = 0; r < kRows; ++r) scales.add(x, row + r, g, sums[r], totals[r]);
    tile += weight.format.group_bytes();
    activations += kGroup;
  }
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < 2; ++c) totals[r][c].store(out + r * kPanelColumns + c * 8);
  }
}

template <class Sums, int kGroup, bool kMinima>
void run_panel(const PackedLinear& weight, const uint8_t* panel, const QuantRows& x, int64_t begin, int64_t end,
               float* out) {
  for (int t = 0; t < kPanelTiles; ++t) {
    const uint8_t* tile = panel + t * weight.tile_bytes();
    for (int64_t row = begin; row < end;) {
      float* to = out + (row - begin) * kPanelColumns + t * kTileColumns;
      const int count = rows_at_once(end - row);
      switch (count) {
        case 1: run_tile<Sums, kGroup, kMinima, 1>(weight, tile, x, row, to); break;
        case 2: run_tile<Sums, kGroup, kMinima, 2>(weight, tile, x, row, to); break;
        default: run_tile<Sums, kGroup, kMinima, 3>(weight, tile, x, row, to);
      }
      row += count;
    }
  }
}

// The format's group and minima made constants.
template <class Sums>
void run_quantised(const PackedLinear& weight, const uint8_t* panel, const Activations& x, int64_t begin, int64_t end,
                   float* out) {
  const WeightFormat& format = weight.format;
  if (format.group == 32) {
    const auto run = format.has_minima ? run_panel<Sums, 32, true> : run_panel<Sums, 32, false>;
    return run(weight, panel, x.quants, begin, end, out);
  }
  const auto run = format.has_minima ? run_panel<Sums, 16, true> : run_panel<Sums, 16, false>;
  run(weight, panel, x.quants, begin, end, out);
}

}  // namespace noria
