#include <algorithm>
#include <utility>

#include "attention.h"
#include "attention_rows.h"
#include "vec8.h"

namespace noria {
namespace {

constexpr float kNothingSeen = -1e30f;  // below any score, and finite
constexpr float kLog2E = 1.44269504f;   // scores are in powers of two
constexpr int kMixTokens = 64;          // whose values stay in the first-level cache for all rows of a tile

// Memory of one thread. Queries lie [dim][R] for every R rows that are taken at once.
struct Scratch {
  float* merged;
  float* share;
  float* queries;
  float* scores;

  Scratch(float* data, int num_rows, int dim)
      : merged(data),
        share(merged + size_t(num_rows) * share_stride(dim)),
        queries(share + size_t(num_rows) * share_stride(dim)),
        scores(queries + size_t(num_rows) * dim) {}
};

Seen seen_by(const AttentionCall& call, const Tile& tile, int position, int chunk) {
  const int first = call.reach.first(position), end = call.reach.end(position, tile.end_position);
  return {std::clamp(first - chunk * kChunk, 0, kChunk), std::clamp(end - chunk * kChunk, 0, kChunk)};
}

// A row's scores become weights 2^(score - peak), 0 where it does not see; -> (peak, sum of weights).
std::pair<float, float> weigh(float* scores, int num_groups, Seen seen) {
  if (seen.first >= seen.end) {
    std::fill(scores, scores + num_groups * kGroup, 0.0f);
    return {kNothingSeen, 0.0f};
  }
  const int begin = seen.first / kGroup * kGroup, end = (seen.end + kGroup - 1) / kGroup * kGroup;
  std::fill(scores, scores + begin, 0.0f);
  std::fill(scores + begin, scores + seen.first, kNothingSeen);
  std::fill(scores + seen.end, scores + end, kNothingSeen);
  std::fill(scores + end, scores + num_groups * kGroup, 0.0f);
  F8 highest = F8::all(kNothingSeen);
  for (int lane = begin; lane < end; lane += kGroup) highest = max(highest, F8::load(scores + lane));
  const float peak = max_of(highest);
  F8 total = F8::zero();
  for (int lane = begin; lane < end; lane += kGroup) {
    const F8 weight = exp2(F8::load(scores + lane) - F8::all(peak));
    weight.store(scores + lane);
    total = total + weight;
  }
  return {peak, sum_of(total)};
}

// A token's weight takes in the scale of its value.
template <class Stored>
void scale_weights(float* weights, const ChunkKv<Stored>& kv, int dim) {
  for (int group = 0; group < kv.num_groups; ++group) {
    float* at = weights + group * kGroup;
    (F8::load(at) * Stored::value_scales(kv.values()[group], dim)).store(at);
  }
}

// The queries of a tile's rows, times what makes powers of two of their scores.
void gather_queries(const AttentionCall& call, const Tile& tile, float* out) {
  const int dim = call.heads.head_dim, group = call.heads.group(), num_rows = tile.num_tokens * group;
  const float scale = call.scale * kLog2E;
  for (int row = 0; row < num_rows; ++row) {
    const int first = row / kRows * kRows, count = std::min(kRows, num_rows - first);
    const int token = tile.first_token + row / group, head = tile.kv_head * group + row % group;
    const float* query = call.queries + size_t(token) * call.query_stride + size_t(head) * dim;
    float* to = out + first * dim + (row - first);
    for (int d = 0; d < dim; ++d) to[d * count] = query[d] * scale;
  }
}

// Shares lie row after row: [dim] weighted values, the peak, the sum of weights.
template <class Stored>
void share_of_chunk(const AttentionCall& call, const RowsKernels<Stored>& kernels, const Tile& tile, int chunk,
                    const Scratch& scratch, float* shares) {
  const ChunkKv<Stored> kv = find_chunk<Stored>(call, tile, chunk);
  const int dim = call.heads.head_dim, stride = share_stride(dim), num_rows = tile.num_tokens * call.heads.group();
  for (int first = 0; first < kv.num_groups; first += kAtOnce) {
    const int end = std::min(first + kAtOnce, kv.num_groups);
    for (int row = 0; row < num_rows; row += kRows) {
      const auto& kernel = kernels.for_rows(num_rows - row);
      float* out = scratch.scores + row * kScoreStride;
      for (int group = first; group < end; group += kernel.num_groups) {
        kernel.score(scratch.queries + row * dim, kv.keys() + group, dim, out + group * kGroup);
      }
    }
  }
  for (int row = 0; row < num_rows; ++row) {
    const Seen seen = seen_by(call, tile, tile.first_position + row / call.heads.group(), chunk);
    const auto [peak, total] = weigh(scratch.scores + row * kScoreStride, kv.num_groups, seen);
    if constexpr (Stored::kHasValueScales) scale_weights(scratch.scores + row * kScoreStride, kv, dim);
    std::fill(shares + row * stride, shares + row * stride + dim, 0.0f);
    shares[row * stride + dim] = peak;
    shares[row * stride + dim + 1] = total;
  }
  const int end = chunk_end(tile, chunk);
  for (int first = seen_by(call, tile, tile.first_position, chunk).first; first < end; first += kMixTokens) {
    const Seen span{first, std::min(first + kMixTokens, end)};
    for (int row = 0; row < num_rows; row += kRows) {
      kernels.for_rows(num_rows - row).mix(scratch.scores + row * kScoreStride, kv, span, dim, shares + row * stride);
    }
  }
}

// Adds a share to what was merged so far. A share without weight changes nothing, not by a bit.
void merge(float* merged, const float* share, int dim) {
  const float peak = std::max(merged[dim], share[dim]);
  const F8 kept = F8::all(exp2_of(merged[dim] - peak)), added = F8::all(exp2_of(share[dim] - peak));
  for (int d = 0; d < dim; d += 8) {
    fma(F8::load(merged + d), kept, F8::load(share + d) * added).store(merged + d);
  }
  merged[dim + 1] = merged[dim + 1] * _mm256_cvtss_f32(kept.v) + share[dim + 1] * _mm256_cvtss_f32(added.v);
  merged[dim] = peak;
}

void merge_rows(float* merged, const float* shares, int num_rows, int dim) {
  const int stride = share_stride(dim);
  for (int row = 0; row < num_rows; ++row) merge(merged + row * stride, shares + row * stride, dim);
}

// The sign of a zero depends on what was merged with it, so all zeros become +0. -> whether all are numbers.
bool write_out(const AttentionCall& call, const Tile& tile, const float* merged) {
  const int dim = call.heads.head_dim, group = call.heads.group();
  __m256 is_nan = _mm256_setzero_ps();
  for (int row = 0; row < tile.num_tokens * group; ++row, merged += share_stride(dim)) {
    float* out = call.out + size_t(tile.first_token + row / group) * call.heads.query_size() +
                 size_t(tile.kv_head * group + row % group) * dim;
    const F8 total = F8::all(merged[dim + 1]);
    for (int d = 0; d < dim; d += 8) {
      const F8 mixed = F8::load(merged + d) / total + F8::zero();
      is_nan = _mm256_or_ps(is_nan, _mm256_cmp_ps(mixed.v, mixed.v, _CMP_UNORD_Q));
      mixed.store(out + d);
    }
  }
  return _mm256_movemask_ps(is_nan) == 0;
}

// All chunks of a tile. -> as write_out.
template <class Stored>
bool attend_whole(const AttentionCall& call, const RowsKernels<Stored>& kernels, const Tile& tile, float* memory) {
  const int dim = call.heads.head_dim, num_rows = tile.num_tokens * call.heads.group();
  const Scratch scratch(memory, num_rows, dim);
  gather_queries(call, tile, scratch.queries);
  share_of_chunk(call, kernels, tile, tile.first_chunk, scratch, scratch.merged);
  for (int chunk = 1; chunk < tile.num_chunks; ++chunk) {
    share_of_chunk(call, kernels, tile, tile.first_chunk + chunk, scratch, scratch.share);
    merge_rows(scratch.merged, scratch.share, num_rows, dim);
  }
  return write_out(call, tile, scratch.merged);
}

// Token after token. A tile's rows are mixed from what any of them sees, with weight 0 where one does not; and 0 times
// a value that is not a number is none. What a sequence's beginning becomes must not depend on what follows it: others
// that begin alike will find its keys and values in the cache.
template <class Stored>
void attend_apart(const AttentionCall& call, const RowsKernels<Stored>& kernels, const Tile& tile, float* memory) {
  const int length = call.step->context_lens[tile.sequence];
  for (int token = 0; token < tile.num_tokens; ++token) {
    Tile own = tile;
    own.first_token += token;
    own.num_tokens = 1;
    own.first_position += token;
    own.end_position = call.reach.end(own.first_position, length);
    own.first_chunk = call.reach.first(own.first_position) / kChunk;
    own.num_chunks = (own.end_position - 1) / kChunk - own.first_chunk + 1;
    attend_whole(call, kernels, own, memory);
  }
}

template <class Stored>
void attend(const AttentionCall& call, const RowsKernels<Stored>& kernels, AttentionPlan& plan, const TileWork& work,
            float* memory) {
  const Tile& tile = plan.tiles()[work.tile];
  const int dim = call.heads.head_dim, num_rows = tile.num_tokens * call.heads.group();
  if (work.num_chunks == tile.num_chunks) {
    const bool is_whole = attend_whole(call, kernels, tile, memory);
    if (!is_whole && tile.num_tokens > 1) attend_apart(call, kernels, tile, memory);
    return;
  }
  const Scratch scratch(memory, num_rows, dim);
  gather_queries(call, tile, scratch.queries);
  const size_t share_size = size_t(num_rows) * share_stride(dim);
  float* shares = call.shares + size_t(tile.first_share) * share_stride(dim);
  float* share = shares + (work.first_chunk - tile.first_chunk) * share_size;
  share_of_chunk(call, kernels, tile, work.first_chunk, scratch, share);
  if (!plan.finish_chunk(work.tile)) return;
  for (int chunk = 1; chunk < tile.num_chunks; ++chunk) merge_rows(shares, shares + chunk * share_size, num_rows, dim);
  if (!write_out(call, tile, shares) && tile.num_tokens > 1) attend_apart(call, kernels, tile, memory);
}

}  // namespace

void attend_avx2(const AttentionCall& call, AttentionPlan& plan, const TileWork& work, float* scratch) {
  const AttentionTable& table = *call.table;
  switch (call.cache->kind()) {
    case KvKind::kF32:
      return attend(call, table.f32, plan, work, scratch);
    case KvKind::kF16:
      return attend(call, table.f16, plan, work, scratch);
    case KvKind::kBf16:
      return attend(call, table.bf16, plan, work, scratch);
    case KvKind::kInt8:
      return attend(call, table.int8, plan, work, scratch);
  }
}

// Some twelve sums at once.
struct Widths8 {
  using Lanes = Lanes8;
  static constexpr int vectors_for(int num_rows) { return num_rows == 1 ? kAtOnce : num_rows <= 3 ? 4 : 2; }
};

constexpr AttentionTable kAttentionAvx2 = attention_of<Widths8>();

}  // namespace noria
