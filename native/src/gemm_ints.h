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
  kNothing,    // they are of code - zero
  kUsualZero,  // they are of codes whose zero is kUsualZero: the row's offset is to be added
  kZero,       // they are of codes; zero * the row's sum is to be taken off
  kMinima,     // they are of codes; minimum * the row's sum is to be added
};

// Vectors that hold a tile's columns.
template <class Isa>
constexpr int kParts = kTileColumns / Isa::kLanes;

// Scales and minima of one group in the columns of some tiles.
template <class Isa, bool kMinima, int kTiles = 1>
struct Scales {
  using Floats = typename Isa::Floats;
  static constexpr int kVectors = kTiles * kParts<Isa>;
  Floats scales[kVectors];
  Floats minima[kMinima ? kVectors : 1];

  // Those of one tile. codes: where the group begins.
  void load(const WeightFormat& format, const uint8_t* codes, int tile = 0) {
    const uint8_t* at = codes + format.group_code_bytes();
    const int part = Isa::kLanes * format.scale_bytes(), first = tile * kParts<Isa>;
    for (int c = 0; c < kParts<Isa>; ++c) {
      scales[first + c] = floats_at(format, at + c * part);
      if constexpr (kMinima) minima[first + c] = floats_at(format, at + (kParts<Isa> + c) * part);
    }
  }

  static Floats floats_at(const WeightFormat& format, const uint8_t* at) {
    return format.scales == ScaleKind::kF32 ? Floats::load(reinterpret_cast<const float*>(at)) : Isa::halves(at);
  }
};

// Adds one row's integers of a group to its totals. row_scale, row_sum: where the row's numbers of the group are; for
// kUsualZero row_sum is where its offset is. Zeros are powers of two, so either way to take one off gives the same bits.
template <class Isa, Lack kLack, class ItsScales, int kVectors>
void add_group(const float* row_scale, const float* row_sum, const ItsScales& scales, typename Isa::Floats minus_zero,
               const typename Isa::Ints (&sums)[kVectors], typename Isa::Floats (&totals)[kVectors]) {
  using Floats = typename Isa::Floats;
  const Floats scale = Floats::all(*row_scale);
  if constexpr (kLack == Lack::kNothing) {
    for (int c = 0; c < kVectors; ++c) totals[c] = fma(sums[c].to_floats() * scale, scales.scales[c], totals[c]);
  } else {
    const Floats sum = Floats::all(*row_sum);
    if constexpr (kLack == Lack::kMinima) {
      for (int c = 0; c < kVectors; ++c) {
        totals[c] = fma(sums[c].to_floats() * scale, scales.scales[c], totals[c]);
        totals[c] = fma(scales.minima[c], sum, totals[c]);
      }
    } else {
      const Floats offset = kLack == Lack::kUsualZero ? sum : sum * minus_zero;
      for (int c = 0; c < kVectors; ++c) {
        totals[c] = fma(fma(sums[c].to_floats(), scale, offset), scales.scales[c], totals[c]);
      }
    }
  }
}

// Where a row's scale of a group is, and its sum or offset.
template <int kGroup>
const float* scale_at(const QuantRows& x, int64_t row, int64_t group) {
  return x.scales + row * (x.k / kScaleGroup) + group * kGroup / kScaleGroup;
}

template <int kGroup, Lack kLack>
const float* sum_at(const QuantRows& x, int64_t row, int64_t group) {
  static_assert(kLack != Lack::kUsualZero || kGroup == kScaleGroup);
  const float* of_32 = kLack == Lack::kUsualZero ? x.offsets32 : x.sums32;
  return (kGroup == kScaleGroup ? of_32 : x.sums16) + row * (x.k / kGroup) + group;
}

// A group's weights: unpacked as they are asked for, or in memory.
template <class Kernel>
struct PackedGroup {
  const Kernel& kernel;
  const uint8_t* codes;
  auto at(int step, int part) const { return kernel.unpack(codes, step, part); }
};

template <class Isa, int kVectors>
struct UnpackedGroup {
  const typename Isa::Ints* vectors;
  auto at(int step, int part) const { return vectors[step * kVectors + part]; }
};

// Groups of a tile that are unpacked together, [kSegmentGroups][steps][16 columns]: 12 KB in bytes, 24 KB in shorts. Of
// several tiles fewer, in the same memory.
constexpr int kSegmentGroups = 24;

// A kernel says how integers are multiplied:
//   items(x): where the integers of rows lie, int8_t or int16_t
//   kLack: for a format without minima, kZero or kNothing
//   kCodesAStep: numbers of k in a step
//   unpack(codes, step, part): one vector of a group's weights
//   sum<kSteps>(group, x, stride, sums[rows][vectors]): a group's products, in 32 bits
//
// This runs them over a panel for one form of weights. Few rows go through it tile by tile; many through kManyTiles of
// it at once, so that what is loaded of a row is multiplied with all their columns.
template <class Isa, class Kernel, int kGroup, Lack kLack>
class PanelRun {
 public:
  PanelRun(const PackedLinear& weight, const QuantRows& x)
      : weight_(weight), x_(x), kernel_(weight.format), minus_zero_(Floats::all(-float(weight.format.zero))) {}

  // Rows [begin, end) times a panel -> out, a row kPanelColumns after the one before.
  void run(const uint8_t* panel, int64_t begin, int64_t end, float* out) const {
    const bool are_few = end - begin <= Isa::kFewRows;
    const int step = are_few ? 1 : Isa::kManyTiles;
    for (int t = 0; t < kPanelTiles; t += step, out += step * kTileColumns) {
      const uint8_t* tile = panel + t * weight_.tile_bytes();
      are_few ? run_few(tile, begin, end - begin, out) : run_many(tile, begin, end, out);
    }
  }

 private:
  using Floats = typename Isa::Floats;
  using Ints = typename Isa::Ints;
  static constexpr bool kMinima = kLack == Lack::kMinima;
  static constexpr int kSteps = kGroup / Kernel::kCodesAStep;
  static constexpr int kParts = noria::kParts<Isa>;
  static constexpr int kManyVectors = Isa::kManyTiles * kParts;
  static constexpr int kManyGroups = kSegmentGroups / Isa::kManyTiles;

  struct Segment {
    int64_t first;  // group
    int64_t size;
    alignas(64) Ints vectors[kManyGroups][kSteps * kManyVectors];
    Scales<Isa, kMinima, Isa::kManyTiles> scales[kManyGroups];
  };

  void run_few(const uint8_t* tile, int64_t row, int64_t count, float* out) const {
    const int64_t first = count > Isa::kFewTileRows ? count / 2 : count;
    run_few_of<Isa::kFewTileRows>(tile, row, first, out);
    if (first < count) run_few_of<Isa::kFewTileRows>(tile, row + first, count - first, out + first * kPanelColumns);
  }

  // count: up to kMost.
  template <int kMost>
  void run_few_of(const uint8_t* tile, int64_t row, int64_t count, float* out) const {
    if (count == kMost) return run_few_rows<kMost>(tile, row, out);
    if constexpr (kMost > 1) run_few_of<kMost - 1>(tile, row, count, out);
  }

  // A function of its own: where several are inlined into one, gcc 12 has their sums in memory.
  template <int kRows>
  [[gnu::noinline]] void run_few_rows(const uint8_t* tile, int64_t row, float* out) const {
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
      add(row, g, scales, sums, totals);
    }
    store(totals, out);
  }

  void run_many(const uint8_t* tile, int64_t begin, int64_t end, float* out) const {
    Segment segment;
    const int64_t num_groups = weight_.num_groups();
    for (segment.first = 0; segment.first < num_groups; segment.first += segment.size) {
      segment.size = std::min<int64_t>(kManyGroups, num_groups - segment.first);
      for (int t = 0; t < Isa::kManyTiles; ++t) unpack(tile + t * weight_.tile_bytes(), t, segment);
      run_rows<Isa::kManyRows>(segment, begin, end, out);
    }
  }

  // Tile t of those that go together. Memory is asked for the same groups of the next ones: they come while these are
  // multiplied.
  void unpack(const uint8_t* tile, int t, Segment& segment) const {
    const int64_t stride = weight_.format.group_bytes(), ahead = Isa::kManyTiles * weight_.tile_bytes();
    for (int64_t i = 0; i < segment.size; ++i) {
      const uint8_t* codes = tile + (segment.first + i) * stride;
      for (int64_t at = 0; at < stride; at += kLineBytes) prefetch(codes + ahead + at);
      Ints* vectors = segment.vectors[i] + t * kParts;
#pragma GCC unroll 16
      for (int step = 0; step < kSteps; ++step) {
        for (int c = 0; c < kParts; ++c) vectors[step * kManyVectors + c] = kernel_.unpack(codes, step, c);
      }
      segment.scales[i].load(weight_.format, codes, t);
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
    Floats totals[kRows][kManyVectors];
    for (int r = 0; r < kRows; ++r) {
      for (int c = 0; c < kManyVectors; ++c) {
        totals[r][c] = segment.first == 0 ? Floats::zero() : Floats::load(out + r * kPanelColumns + c * Isa::kLanes);
      }
    }
    const auto* items = kernel_.items(x_) + row * x_.k + segment.first * kGroup;
    for (int64_t i = 0; i < segment.size; ++i) {
      Ints sums[kRows][kManyVectors];
      const UnpackedGroup<Isa, kManyVectors> group{segment.vectors[i]};
      kernel_.template sum<kSteps>(group, items + i * kGroup, x_.k, sums);
      add(row, segment.first + i, segment.scales[i], sums, totals);
    }
    store(totals, out);
  }

  // As a function of its own it would take sums and totals from memory.
  template <class ItsScales, int kRows, int kVectors>
  [[gnu::always_inline]] void add(int64_t row, int64_t group, const ItsScales& scales,
                                  const Ints (&sums)[kRows][kVectors], Floats (&totals)[kRows][kVectors]) const {
    for (int r = 0; r < kRows; ++r) {
      add_group<Isa, kLack>(scale_at<kGroup>(x_, row + r, group), sum_at<kGroup, kLack>(x_, row + r, group), scales,
                            minus_zero_, sums[r], totals[r]);
    }
  }

  template <int kRows, int kVectors>
  static void store(const Floats (&totals)[kRows][kVectors], float* out) {
    for (int r = 0; r < kRows; ++r) {
      for (int c = 0; c < kVectors; ++c) totals[r][c].store(out + r * kPanelColumns + c * Isa::kLanes);
    }
  }

  const PackedLinear& weight_;
  const QuantRows& x_;
  const Kernel kernel_;
  const Floats minus_zero_;
};

// run(group, lack): of the format, as constants.
template <class Kernel, class Run>
void with_form(const WeightFormat& format, const Run& run) {
  using std::integral_constant;
  const auto with_lack = [&](auto group) {
    if (format.has_minima) return run(group, integral_constant<Lack, Lack::kMinima>{});
    if constexpr (Kernel::kLack == Lack::kZero && group == kScaleGroup) {
      if (format.zero == kUsualZero) return run(group, integral_constant<Lack, Lack::kUsualZero>{});
    }
    run(group, integral_constant<Lack, Kernel::kLack>{});
  };
  format.group == 32 ? with_lack(integral_constant<int, 32>{}) : with_lack(integral_constant<int, 16>{});
}

template <class Isa, class Kernel>
void run_quantised(const PackedLinear& weight, const uint8_t* panel, const Activations& x, int64_t begin, int64_t end,
                   float* out) {
  with_form<Kernel>(weight.format, [&](auto group, auto lack) {
    PanelRun<Isa, Kernel, group, lack>(weight, x.quants).run(panel, begin, end, out);
  });
}

}  // namespace noria
