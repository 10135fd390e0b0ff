// The two products of attention, some rows of a tile at a time: scores of queries against keys, and values by their
// weights. Templates over the vectors of a level; what they give has the same bits whatever those are.
#pragma once

#include "attention_kinds.h"

namespace noria {

constexpr int kRows = 6;  // of a tile that are taken at once

// [lanes] of a chunk that a row sees.
struct Seen {
  int first;
  int end;
};

// What the row count of a piece of a tile decides at compile time.
template <class Stored>
struct RowsKernel {
  using Item = typename Stored::Item;

  int num_groups;  // that `score` takes at a time
  // Scores of rows against groups of tokens. queries: [dim][rows].
  void (*score)(const float* queries, const Item* const* keys, int dim, float* out);
  // Adds the values of tokens [span) by their weights.
  void (*mix)(const float* weights, const ChunkKv<Stored>& kv, Seen span, int dim, float* out);
};

// Those for 1 to kRows rows.
template <class Stored>
struct RowsKernels {
  RowsKernel<Stored> of[kRows];

  const RowsKernel<Stored>& for_rows(int num_rows) const { return of[std::min(num_rows, kRows) - 1]; }
};

// Of one level.
struct AttentionTable {
  RowsKernels<StoredF32> f32;
  RowsKernels<StoredF16> f16;
  RowsKernels<StoredBf16> bf16;
  RowsKernels<StoredInt8> int8;
};

// Few rows wait for memory, many for the products: those need no more of the processor's attention on memory.
constexpr bool is_fetching(int num_rows) { return num_rows <= 3; }

// Every shape adds up the dimensions one after the other.
template <class Lanes, class Stored, int R, int V>
void score_groups(const float* queries, const typename Stored::Item* const* keys, int dim, float* out) {
  using Floats = typename Lanes::Floats;
  constexpr int kLine = 64 / sizeof(typename Stored::Item), kEights = Lanes::kEights;
  Floats sums[R][V];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) sums[r][v] = Floats::zero();
  }
  for (int start = 0; start < dim; start += 4) {
#pragma GCC unroll 2
    for (int pair = 0; pair < 2; ++pair) {
      const int d = start + 2 * pair;
      add_products(
          sums, [&](int r) { return Floats::all(queries[d * R + r]); },
          [&](int v) { return Lanes::of([&](int i) { return Stored::even_key(keys[v * kEights + i], d); }); });
      add_products(
          sums, [&](int r) { return Floats::all(queries[(d + 1) * R + r]); },
          [&](int v) { return Lanes::of([&](int i) { return Stored::odd_key(keys[v * kEights + i], d); }); });
    }
    if constexpr (is_fetching(R)) {
      constexpr int kCount = V * kEights;
      for (int at = 0; at < 4 * kGroup; at += kLine) {
        for (int i = 0; i < kCount; ++i) prefetch(keys[std::max(kCount, kAhead) + i] + start * kGroup + at);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) sums[r][v].store(out + r * kScoreStride + v * kEights * kGroup);
  }
}

// V vectors of dimensions. Every shape adds up the tokens one after the other.
template <class Lanes, class Stored, int R, int V>
void mix_dims(const float* weights, const ChunkKv<Stored>& kv, Seen span, int dim, int first_dim, float* out) {
  using Floats = typename Lanes::Floats;
  constexpr int kLine = 64 / sizeof(typename Stored::Item), kWidth = Lanes::kEights * 8;
  const int stride = share_stride(dim);
  Floats sums[R][V];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) sums[r][v] = Floats::load(out + r * stride + first_dim + v * kWidth);
  }
  for (int group = span.first / kGroup; group * kGroup < span.end; ++group) {
    const int begin = std::max(span.first - group * kGroup, 0), end = std::min(span.end - group * kGroup, kGroup);
    const auto* at = kv.values()[group] + begin * dim + first_dim;
    const auto* next = kv.values()[group + kAhead] + begin * dim + first_dim;
    const float* weight = weights + group * kGroup + begin;
    for (int token = begin; token < end; ++token, at += dim, next += dim, ++weight) {
      add_products(
          sums, [&](int r) { return Floats::all(weight[r * kScoreStride]); },
          [&](int v) { return Stored::template value<Lanes, V>(at, v); });
      if constexpr (is_fetching(R)) {
        for (int d = 0; d < V * kWidth; d += kLine) prefetch(next + d);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) sums[r][v].store(out + r * stride + first_dim + v * kWidth);
  }
}

// Widths: what is taken at once for R rows.
template <class Widths, class Stored, int R>
void mix_rows(const float* weights, const ChunkKv<Stored>& kv, Seen span, int dim, float* out) {
  using Lanes = typename Widths::Lanes;
  constexpr int V = Widths::vectors_for(R), kWidth = Lanes::kEights * 8;
  int d = 0;
  for (; d + V * kWidth <= dim; d += V * kWidth) mix_dims<Lanes, Stored, R, V>(weights, kv, span, dim, d, out);
  for (; d + 16 <= dim; d += 16) mix_dims<Lanes, Stored, R, 16 / kWidth>(weights, kv, span, dim, d, out);
  if (d < dim) mix_dims<Lanes8, Stored, R, 1>(weights, kv, span, dim, d, out);
}

template <class Widths, class Stored, int R>
constexpr RowsKernel<Stored> kernel_of() {
  using Lanes = typename Widths::Lanes;
  constexpr int V = Widths::vectors_for(R);
  return {V * Lanes::kEights, score_groups<Lanes, Stored, R, V>, mix_rows<Widths, Stored, R>};
}

template <class Widths, class Stored>
constexpr RowsKernels<Stored> kernels_of() {
  return {{kernel_of<Widths, Stored, 1>(), kernel_of<Widths, Stored, 2>(), kernel_of<Widths, Stored, 3>(),
           kernel_of<Widths, Stored, 4>(), kernel_of<Widths, Stored, 5>(), kernel_of<Widths, Stored, 6>()}};
}

template <class Widths>
constexpr AttentionTable attention_of() {
  return {kernels_of<Widths, StoredF32>(), kernels_of<Widths, StoredF16>(), kernels_of<Widths, StoredBf16>(),
          kernels_of<Widths, StoredInt8>()};
}

// At levels of 16 lanes and 32 registers: all that is taken together for any number of rows, so 24 sums at most.
template <class WideLanes>
struct WideWidths {
  using Lanes = WideLanes;
  static constexpr int vectors_for(int) { return kAtOnce / Lanes::kEights; }
};

}  // namespace noria
