// Products of integers, and how a group's sums join a row's totals: the same operations in the same order at every
// level. Isa is what ints8_avx2.h describes, or another level's.
//
// A step is what 4 bytes of a row hold: 4 numbers of k in bytes, 2 in shorts. A group's weights are 16 columns a step,
// one vector or two parts, in the form that the step multiplies. Many rows unpack them once into memory that the first
// caches hold; few rows unpack as they go.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "gemm_table.h"

namespace noria {

// Few rows pass over weights once, from memory: they are fetched so far ahead, whatever tile they belong to.
constexpr int kPrefetchBytes = 2048;
inline void prefetch(const uint8_t* at) { __builtin_prefetch(at); }

// What a group's integers lack of its products.
enum class Lack {
  kNothing,  // they are of code - zero
  kZero,     // they are of codes; zero * the row's sum is to be taken off
  kMinima,   // they are of codes; minimum * the row's sum is to be added
};

// Vectors that hold a tile's columns.
template <class Isa>
constexpr int kParts = kTileColumns / Isa::kLanes;

// Scales and minima of 16 columns in one group.
template <class Isa, bool kMinima>
struct Scales {
  using Floats = typename Isa::Floats;
  Floats scales[kParts<Isa>];
  Floats minima[kMinima ? kParts<Isa> : 1];

  // codes: where the group begins.
  void load(const WeightFormat& format, const uint8_t* codes) {
    const uint8_t* at = codes + format.group_code_bytes();
    const int part = Isa::kLanes * format.scale_bytes();
    for (int c = 0; c < kParts<Isa>; ++c) {
      scales[c] = floats_at(format, at + c * part);
      if constexpr (kMinima) minima[c] = floats_at(format, at + (kParts<Isa> + c) * part);
    }
  }

  static Floats floats_at(const WeightFormat& format, const uint8_t* at) {
    return format.scales == ScaleKind::kF32 ? Floats::load(reinterpret_cast<const float*>(at)) : Isa::halves(at);
  }
};

// Adds one row's integers of a group, 16 columns of them, to its totals. row_scale, row_sum: where the row's numbers of
// the group are.
template <class Isa, Lack kLack>
void add_group(const float* row_scale, const float* row_sum, const Scales<Isa, kLack == Lack::kMinima>& scales,
               typename Isa::Floats minus_zero, const typename Isa::Ints (&sums)[kParts<Isa>],
               typename Isa::Floats (&totals)[kParts<Isa>]) {
  using Floats = typename Isa::Floats;
  const Floats scale = Floats::all(*row_scale);
  if constexpr (kLack == Lack::kNothing) {
    for (int c = 0; c < kParts<Isa>; ++c) totals[c] = fma(sums[c].to_floats() * scale, scales.scales[c], totals[c]);
  } else {
    const Floats sum = Floats::all(*row_sum);
    if constexpr (kLack == Lack::kMinima) {
      for (int c = 0; c < kParts<Isa>; ++c) {
        totals[c] = fma(sums[c].to_floats() * scale, scales.scales[c], totals[c]);
        totals[c] = fma(scales.minima[c], sum, totals[c]);
      }
    } else {
      const Floats offset = sum * minus_zero;
      for (int c = 0; c < kParts<Isa>; ++c) {
        totals[c] = fma(fma(sums[c].to_floats(), scale, offset), scales.scales[c], totals[c]);
      }
    }
  }
}

// Where a row's scale and sum of a group are.
template <int kGroup>
const float* scale_at(const QuantRows& x, int64_t row, int64_t group) {
  return x.scales + row * (x.k / kScaleGroup) + group * kGroup / kScaleGroup;
}

template <int kGroup>
const float* sum_at(const QuantRows& x, int64_t row, int64_t group) {
  return (kGroup == kScaleGroup ? x.sums32 : x.sums16) + row * (x.k / kGroup) + group;
}

// A group's weights: unpacked as they are asked for, or in memory.
template <class Kernel>
struct PackedGroup {
  const Kernel& kernel;
  const uint8_t* codes;
  auto at(int step, int part) const { return kernel.unpack(codes, step, part); }
};

template <class Isa>
struct UnpackedGroup {
  const typename Isa::Ints* vectors;
  auto at(int step, int part) const { return vectors[step * kParts<Isa> + part]; }
};

// Groups that are unpacked together, [kSegmentGroups][steps][16 columns]: 12 KB in bytes, 24 KB in shorts.
constexpr int kSegmentGroups = 24;

// A kernel says how integers are multiplied:
//   items(x): where the integers of rows lie, int8_t or int16_t
//   kLack: for a format without minima
//   kCodesAStep: numbers of k in a step
//   unpack(codes, step, part): one vector of a group's weights
//   sum<kSteps, kRows>(group, x, stride, sums): a group's products, in 32 bits
//
// This runs them over one tile for one form of weights.
template <class Isa, class Kernel, int kGroup, bool kMinima>
class TileRun {
 public:
  TileRun(const PackedLinear& weight, const QuantRows& x)
      : weight_(weight), x_(x), kernel_(weight.format), minus_zero_(Floats::all(-float(weight.format.zero))) {}

  // Rows [begin, end) times a tile -> out, a row kPanelColumns after the one before.
  void run(const uint8_t* tile, int64_t begin, int64_t end, float* out) const {
    const int64_t count = end - begin;
    if (count > Isa::kFewRows) return run_many(tile, begin, end, out);
    const int64_t first = count > Isa::kFewTileRows ? count / 2 : count;
    run_few_of<Isa::kFewTileRows>(tile, begin, first, out);
    if (first < count) run_few_of<Isa::kFewTileRows>(tile, begin + first, count - first, out + first * kPanelColumns);
  }

 private:
  using Floats = typename Isa::Floats;
  using Ints = typename Isa::Ints;
  static constexpr Lack kLack = kMinima ? Lack::kMinima : Kernel::kLack;
  static constexpr int kSteps = kGroup / Kernel::kCodesAStep;
  static constexpr int kParts = noria::kParts<Isa>;

  struct Segment {
    int64_t first;  // group
    int64_t size;
    alignas(64) Ints vectors[kSegmentGroups][kSteps * kParts];
    Scales<Isa, kMinima> scales[kSegmentGroups];
  };

  // count: up to kMost.
  template <int kMost>
  void run_few_of(const uint8_t* tile, int64_t row, int64_t count, float* out) const {
    if (count == kMost) return run_few<kMost>(tile, row, out);
    if constexpr (kMost > 1) run_few_of<kMost - 1>(tile, row, count, out);
  }

  template <int kRows>
  void run_few(const uint8_t* tile, int64_t row, float* out) const {
    Floats totals[kRows][kParts];
    for (auto& parts : totals) {
      for (Floats& total : parts) total = Floats::zero();
    }
    Scales<Isa, kMinima> scales;
    const int64_t num_groups = weight_.num_groups(), stride = weight_.format.group_bytes();
    const auto* items = kernel_.items(x_) + row * x_.k;
    for (int64_t g = 0; g < num_groups; ++g, tile += stride) {
      for (int64_t at = 0; at < stride; at += kLineBytes) prefetch(tile + kPrefetchBytes + at);
      Ints sums[kRows][kParts];
      kernel_.template sum<kSteps>(PackedGroup<Kernel>{kernel_, tile}, items + g * kGroup, x_.k, sums);
      scales.load(weight_.format, tile);
      for (int r = 0; r < kRows; ++r) {
        add_group<Isa, kLack>(scale_at<kGroup>(x_, row + r, g), sum_at<kGroup>(x_, row + r, g), scales, minus_zero_,
                              sums[r], totals[r]);
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
      run_rows<Isa::kTileRows>(segment, begin, end, out);
    }
  }

  // Memory is asked for the same groups of the next tile: they come while this one is multiplied.
  void unpack(const uint8_t* tile, Segment& segment) const {
    const int64_t stride = weight_.format.group_bytes(), tile_bytes = weight_.tile_bytes();
    for (int64_t i = 0; i < segment.size; ++i) {
      const uint8_t* codes = tile + (segment.first + i) * stride;
      for (int64_t at = 0; at < stride; at += kLineBytes) prefetch(codes + tile_bytes + at);
#pragma GCC unroll 16
      for (int step = 0; step < kSteps; ++step) {
        for (int c = 0; c < kParts; ++c) segment.vectors[i][step * kParts + c] = kernel_.unpack(codes, step, c);
      }
      segment.scales[i].load(weight_.format, codes);
    }
  }

  // By kRows, and what is left by fewer.
  template <int kRows>
  void run_rows(const Segment& segment, int64_t row, int64_t end, float* out) const {
    for (; row + kRows <= end; row += kRows, out += kRows * kPanelColumns) run_segment<kRows>(segment, row, out);
    if constexpr (kRows > 1) run_rows<(kRows > 4 ? kRows / 2 : kRows - 1)>(segment, row, end, out);
  }

  template <int kRows>
  void run_segment(const Segment& segment, int64_t row, float* out) const {
    Floats totals[kRows][kParts];
    for (int r = 0; r < kRows; ++r) {
      for (int c = 0; c < kParts; ++c) {
        totals[r][c] = segment.first == 0 ? Floats::zero() : Floats::load(out + r * kPanelColumns + c * Isa::kLanes);
      }
    }
    const auto* items = kernel_.items(x_) + row * x_.k + segment.first * kGroup;
    for (int64_t i = 0; i < segment.size; ++i) {
      Ints sums[kRows][kParts];
      kernel_.template sum<kSteps>(UnpackedGroup<Isa>{segment.vectors[i]}, items + i * kGroup, x_.k, sums);
      for (int r = 0; r < kRows; ++r) {
        const int64_t group = segment.first + i;
        add_group<Isa, kLack>(scale_at<kGroup>(x_, row + r, group), sum_at<kGroup>(x_, row + r, group),
                              segment.scales[i], minus_zero_, sums[r], totals[r]);
      }
    }
    store(totals, out);
  }

  template <int kRows>
  static void store(const Floats (&totals)[kRows][kParts], float* out) {
    for (int r = 0; r < kRows; ++r) {
      for (int c = 0; c < kParts; ++c) totals[r][c].store(out + r * kPanelColumns + c * Isa::kLanes);
    }
  }

  const PackedLinear& weight_;
  const QuantRows& x_;
  const Kernel kernel_;
  const Floats minus_zero_;
};

// run(group, has_minima): of the format, as constants.
template <class Run>
void with_form(const WeightFormat& format, const Run& run) {
  using std::integral_constant;
  const auto with_minima = [&](auto group) {
    format.has_minima ? run(group, std::true_type{}) : run(group, std::false_type{});
  };
  format.group == 32 ? with_minima(integral_constant<int, 32>{}) : with_minima(integral_constant<int, 16>{});
}

template <class Isa, class Kernel>
void run_quantised(const PackedLinear& weight, const uint8_t* panel, const Activations& x, int64_t begin, int64_t end,
                   float* out) {
  with_form(weight.format, [&](auto group, auto has_minima) {
    const TileRun<Isa, Kernel, group, has_minima> run(weight, x.quants);
    for (int t = 0; t < kPanelTiles; ++t) run.run(panel + t * weight.tile_bytes(), begin, end, out + t * kTileColumns);
  });
}

}  // namespace noria
