// Products of rows in bytes for a level that multiplies tiles of rows with tiles of columns. Sums of a group are exact,
// and they join a row's totals by the operations of gemm_ints.h in its order: the bits are every other level's.
//
// A tile of weights is a group's 16 columns, a line for each step of k as the unpacked weights of gemm_ints.h lie.
//
// Isa is one with 16 lanes, and its Tiles are, while they live, tiles for kMatrixRows rows and for a given lesser
// number; see tiles_amx.h.
#pragma once

#include <algorithm>
#include <cstdint>

#include "gemm_codes.h"

namespace noria {

constexpr int kMatrixRows = 16;  // of a tile

// Runs a kernel of gemm_codes.h over one tile of a panel for one form of weights.
template <class Isa, class Kernel, int kGroup, Lack kLack>
class MatrixRun {
 public:
  using Tiles = typename Isa::Tiles;

  MatrixRun(const PackedLinear& weight, const QuantRows& x, const Tiles& tiles)
      : weight_(weight),
        x_(x),
        tiles_(tiles),
        kernel_(weight.format),
        minus_zero_(Floats::all(-float(weight.format.zero))) {}

  // Rows [begin, end) times a tile -> out, a row kPanelColumns after the one before. The tiles are made for what whole
  // tiles of rows leave.
  void run(const uint8_t* tile, int64_t begin, int64_t end, float* out) const {
    Segment segment;
    const int64_t num_groups = weight_.num_groups();
    for (segment.first = 0; segment.first < num_groups; segment.first += segment.size) {
      segment.size = std::min<int64_t>(kSegmentGroups, num_groups - segment.first);
      unpack(tile, segment);
      const int64_t whole_end = end - (end - begin) % kMatrixRows;
      if (begin < whole_end) run_rows<true>(segment, begin, whole_end, out);
      if (whole_end < end) run_rows<false>(segment, whole_end, end, out + (whole_end - begin) * kPanelColumns);
    }
  }

 private:
  using Floats = typename Isa::Floats;
  using Ints = typename Isa::Ints;
  static_assert(kParts<Isa> == 1);
  static constexpr int kSteps = kGroup / Kernel::kCodesAStep;
  static constexpr int kAhead = 4;  // products of tiles that are under way

  struct alignas(64) Segment {
    Ints lines[kSegmentGroups][kSteps];
    Scales<Isa, kLack == Lack::kMinima> scales[kSegmentGroups];
    int64_t first;  // group
    int64_t size;
  };

  struct alignas(64) Sums {
    int32_t of[kMatrixRows][kTileColumns];
  };

  // Memory is asked for the same groups of the next tile: they come while this one is multiplied.
  void unpack(const uint8_t* tile, Segment& segment) const {
    const int64_t stride = weight_.format.group_bytes(), tile_bytes = weight_.tile_bytes();
    for (int64_t i = 0; i < segment.size; ++i) {
      const uint8_t* codes = tile + (segment.first + i) * stride;
      for (int64_t at = 0; at < stride; at += kLineBytes) prefetch(codes + tile_bytes + at);
#pragma GCC unroll 16
      for (int step = 0; step < kSteps; ++step) segment.lines[i][step] = kernel_.unpack(codes, step, 0);
      segment.scales[i].load(weight_.format, codes);
    }
  }

  // kWhole: for as many rows as a tile has, whose totals then stay in registers.
  template <bool kWhole, class Each>
  static void for_rows(int count, const Each& each) {
    if constexpr (kWhole) {
#pragma GCC unroll 16
      for (int r = 0; r < kMatrixRows; ++r) each(r);
    } else {
      for (int r = 0; r < count; ++r) each(r);
    }
  }

  // Tiles of rows [begin, end), whole ones or what is left by them.
  template <bool kWhole>
  void run_rows(const Segment& segment, int64_t begin, int64_t end, float* out) const {
    // What a tile stored can be read a while later: some groups are multiplied before the first joins the totals, of
    // the next rows too.
    Sums sums[kAhead];
    int64_t next_row = begin, next_group = 0;
    unsigned num_multiplied = 0, num_added = 0;
    const auto multiply_next = [&] {
      if (next_row == end) return;
      multiply<kWhole>(segment, next_row, next_group, sums[num_multiplied++ % kAhead]);
      if (++next_group < segment.size) return;
      next_group = 0;
      next_row = kWhole ? next_row + kMatrixRows : end;
    };
    for (int i = 1; i < kAhead; ++i) multiply_next();
    for (int64_t row = begin; row < end; row += kMatrixRows, out += kMatrixRows * kPanelColumns) {
      const int count = int(end - row);  // of what is left
      Floats totals[kMatrixRows];
      for_rows<kWhole>(count, [&](int r) {
        totals[r] = segment.first == 0 ? Floats::zero() : Floats::load(out + r * kPanelColumns);
      });
      for (int64_t i = 0; i < segment.size; ++i) {
        multiply_next();
        add<kWhole>(segment, row, count, i, sums[num_added++ % kAhead], totals);
      }
      for_rows<kWhole>(count, [&](int r) { totals[r].store(out + r * kPanelColumns); });
    }
  }

  // Group i of a segment.
  template <bool kWhole>
  void multiply(const Segment& segment, int64_t row, int64_t i, Sums& sums) const {
    const int8_t* rows = Kernel::items(x_) + row * x_.k + (segment.first + i) * kGroup;
    tiles_.template multiply<kWhole>(rows, x_.k, segment.lines[i], sums.of);
  }

  template <bool kWhole>
  void add(const Segment& segment, int64_t row, int count, int64_t i, const Sums& sums,
           Floats (&totals)[kMatrixRows]) const {
    // By four rows each, so that the rows' places need few registers.
    const int64_t scales_stride = x_.k / kScaleGroup, sums_stride = x_.k / kGroup;
    const float *scales[4], *row_sums[4];
    for (int quad = 0; quad < 4; ++quad) {
      scales[quad] = scale_at<kGroup>(x_, row + quad * 4, segment.first + i);
      row_sums[quad] = sum_at<kGroup, kLack>(x_, row + quad * 4, segment.first + i);
    }
    for_rows<kWhole>(count, [&](int r) {
      const Ints ints[1] = {Ints::load(reinterpret_cast<const uint8_t*>(sums.of[r]))};
      Floats total[1] = {totals[r]};
      add_group<Isa, kLack>(scales[r / 4] + r % 4 * scales_stride, row_sums[r / 4] + r % 4 * sums_stride,
                            segment.scales[i], minus_zero_, ints, total);
      totals[r] = total[0];
    });
  }

  const PackedLinear& weight_;
  const QuantRows& x_;
  const Tiles& tiles_;
  const Kernel kernel_;
  const Floats minus_zero_;
};

// few: the same product for rows that are not worth tiles.
template <class Isa, class Kernel>
void run_matrices(PanelKernel few, const PackedLinear& weight, const uint8_t* panel, const Activations& x,
                  int64_t begin, int64_t end, float* out) {
  if (end - begin <= Isa::kFewTileRows) return few(weight, panel, x, begin, end, out);
  with_form<Kernel>(weight.format, [&](auto group, auto lack) {
    using Run = MatrixRun<Isa, Kernel, group, lack>;
    const typename Isa::Tiles tiles(group, int((end - begin) % kMatrixRows));
    const Run run(weight, x.quants, tiles);
    for (int t = 0; t < kPanelTiles; ++t) run.run(panel + t * weight.tile_bytes(), begin, end, out + t * kTileColumns);
  });
}

}  // namespace noria
