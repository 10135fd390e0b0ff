#include <algorithm>
#include <utility>

#include "attention.h"
#include "vec8.h"

namespace noria {
namespace {

constexpr int kGroup = KvCache::kGroup;
constexpr int kGroups = kChunk / kGroup;
constexpr float kNothingSeen = -1e30f;  // below any score, and finite

// How each kind of cache is read: one dimension of 8 tokens' keys (of a pair, the even or the odd), 8 dimensions of a
// token's value.
struct StoredF32 {
  using Item = float;
  static F8 even_key(const Item* group, int d) { return F8::load(group + d * kGroup); }
  static F8 odd_key(const Item* group, int d) { return F8::load(group + (d + 1) * kGroup); }
  static F8 value(const Item* at) { return F8::load(at); }
};

struct StoredBf16 {
  using Item = uint16_t;
  static __m256i pair(const Item* group, int d) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(group + d * kGroup));
  }
  static F8 even_key(const Item* group, int d) { return {_mm256_castsi256_ps(_mm256_slli_epi32(pair(group, d), 16))}; }
  static F8 odd_key(const Item* group, int d) {
    const __m256i upper = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
    return {_mm256_castsi256_ps(_mm256_and_si256(pair(group, d), upper))};
  }
  static F8 value(const Item* at) { return load_bf16(at); }
};

// A chunk of one sequence and head, as groups of 8 tokens; those past its end repeat the last, to be masked.
template <class Stored>
struct ChunkKv {
  const typename Stored::Item* keys[kGroups];
  const typename Stored::Item* values[kGroups];
  int num_groups;
};

template <class Stored>
ChunkKv<Stored> find_chunk(const AttentionCall& call, const Tile& tile, int chunk) {
  using Item = typename Stored::Item;
  const int block_size = call.cache->shape().block_size;
  const int32_t* table = call.step->block_tables + size_t(tile.sequence) * call.step->table_width;
  const int end = std::min(tile.first_position + tile.num_tokens, (chunk + 1) * kChunk);
  ChunkKv<Stored> found;
  found.num_groups = (end - chunk * kChunk + kGroup - 1) / kGroup;
  for (int group = 0; group < kGroups; ++group) {
    const int position = chunk * kChunk + std::min(group, found.num_groups - 1) * kGroup;
    const int block = table[position / block_size], offset = position % block_size;
    found.keys[group] = reinterpret_cast<const Item*>(call.cache->keys(call.layer, block, tile.kv_head, offset));
    found.values[group] = reinterpret_cast<const Item*>(call.cache->values(call.layer, block, tile.kv_head, offset));
  }
  return found;
}

// Scores of R rows against V groups. Every shape adds up the dimensions one after the other.
template <class Stored, int R, int V>
void score_groups(const float* const* rows, const typename Stored::Item* const* keys, int dim, float* out) {
  F8 sums[R][V];
  for (auto& row : sums) std::fill(row, row + V, F8::zero());
  const auto add = [&](const F8* key, int d) {
    for (int r = 0; r < R; ++r) {
      const F8 query = F8::all(rows[r][d]);
      for (int v = 0; v < V; ++v) sums[r][v] = fma(query, key[v], sums[r][v]);
    }
  };
  F8 key[V];
  for (int d = 0; d < dim; d += 2) {
    for (int v = 0; v < V; ++v) key[v] = Stored::even_key(keys[v], d);
    add(key, d);
    for (int v = 0; v < V; ++v) key[v] = Stored::odd_key(keys[v], d);
    add(key, d + 1);
  }
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < V; ++v) sums[r][v].store(out + r * kChunk + v * kGroup);
  }
}

// Groups at a time, for R rows: some twelve sums at once.
constexpr int groups_for(int num_rows) { return num_rows == 1 ? 8 : num_rows <= 3 ? 4 : 2; }

template <class Stored, int R>
void score_rows(const float* const* rows, const ChunkKv<Stored>& kv, int dim, float* out) {
  constexpr int V = groups_for(R);
  for (int group = 0; group < kv.num_groups; group += V) {
    score_groups<Stored, R, V>(rows, kv.keys + group, dim, out + group * kGroup);
  }
}

// [lanes] of a chunk that a row sees.
struct Seen {
  int first;
  int end;
};

Seen seen_by(const AttentionCall& call, int position, int chunk) {
  const int first = call.window > 0 ? std::max(0, position - call.window + 1) : 0;
  return {std::clamp(first - chunk * kChunk, 0, kChunk), std::clamp(position + 1 - chunk * kChunk, 0, kChunk)};
}

// A row's scores become weights e^(score * scale - peak), 0 where it does not see; -> (peak, sum of weights).
std::pair<float, float> weigh(float* scores, int num_groups, Seen seen, float scale) {
  const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i first = _mm256_set1_epi32(seen.first - 1), end = _mm256_set1_epi32(seen.end);
  F8 highest = F8::all(kNothingSeen);
  for (int group = 0; group < num_groups; ++group) {
    const __m256i lane = _mm256_add_epi32(lanes, _mm256_set1_epi32(group * kGroup));
    const __m256i inside = _mm256_and_si256(_mm256_cmpgt_epi32(lane, first), _mm256_cmpgt_epi32(end, lane));
    const F8 score = F8::load(scores + group * kGroup) * F8::all(scale);
    const F8 kept{_mm256_blendv_ps(F8::all(2 * kNothingSeen).v, score.v, _mm256_castsi256_ps(inside))};
    kept.store(scores + group * kGroup);
    highest = max(highest, kept);
  }
  const float peak = max_of(highest);
  F8 total = F8::zero();
  for (int group = 0; group < num_groups; ++group) {
    const F8 weight = exp(F8::load(scores + group * kGroup) - F8::all(peak));
    weight.store(scores + group * kGroup);
    total = total + weight;
  }
  return {peak, sum_of(total)};
}

// Weighted values of R rows, V vectors of dimensions. Every shape adds up the tokens one after the other.
template <class Stored, int R, int V>
void mix_dims(const float* weights, const ChunkKv<Stored>& kv, Seen span, int dim, int first_dim, float* out) {
  F8 sums[R][V];
  for (auto& row : sums) std::fill(row, row + V, F8::zero());
  for (int token = span.first; token < span.end; ++token) {
    const auto* at = kv.values[token / kGroup] + size_t(token % kGroup) * dim + first_dim;
    F8 value[V];
    for (int v = 0; v < V; ++v) value[v] = Stored::value(at + v * 8);
    for (int r = 0; r < R; ++r) {
      const F8 weight = F8::all(weights[r * kChunk + token]);
      for (int v = 0; v < V; ++v) sums[r][v] = fma(weight, value[v], sums[r][v]);
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < V; ++v) sums[r][v].store(out + r * (dim + 2) + first_dim + v * 8);
  }
}

// Shares lie row after row: [dim] weighted values, the peak, the sum of weights.
template <class Stored, int R>
void share_rows(const AttentionCall& call, const Tile& tile, int chunk, int first_row, const ChunkKv<Stored>& kv,
                Seen span, float* scores, float* shares) {
  const int dim = call.heads.head_dim, group = call.heads.group();
  const float* rows[R];
  for (int r = 0; r < R; ++r) {
    const int token = (first_row + r) / group, head = tile.kv_head * group + (first_row + r) % group;
    rows[r] = call.queries + size_t(tile.first_token + token) * call.query_stride + size_t(head) * dim;
  }
  score_rows<Stored, R>(rows, kv, dim, scores);
  for (int r = 0; r < R; ++r) {
    const Seen seen = seen_by(call, tile.first_position + (first_row + r) / group, chunk);
    const auto [peak, total] = weigh(scores + r * kChunk, kv.num_groups, seen, call.scale);
    shares[r * (dim + 2) + dim] = peak;
    shares[r * (dim + 2) + dim + 1] = total;
  }
  constexpr int V = groups_for(R);
  int d = 0;
  for (; d + V * 8 <= dim; d += V * 8) mix_dims<Stored, R, V>(scores, kv, span, dim, d, shares);
  for (; d < dim; d += 8) mix_dims<Stored, R, 1>(scores, kv, span, dim, d, shares);
}

template <class Stored>
void share_of_chunk(const AttentionCall& call, const Tile& tile, int chunk, float* scores, float* shares) {
  const ChunkKv<Stored> kv = find_chunk<Stored>(call, tile, chunk);
  const int num_rows = tile.num_tokens * call.heads.group();
  const int first = seen_by(call, tile.first_position, chunk).first;
  const Seen span{first, seen_by(call, tile.first_position + tile.num_tokens - 1, chunk).end};
  using Rows = void (*)(const AttentionCall&, const Tile&, int, int, const ChunkKv<Stored>&, Seen, float*, float*);
  constexpr Rows by_count[] = {share_rows<Stored, 1>, share_rows<Stored, 2>, share_rows<Stored, 3>,
                               share_rows<Stored, 4>, share_rows<Stored, 5>, share_rows<Stored, 6>};
  for (int row = 0; row < num_rows; row += 6) {
    const int count = std::min(6, num_rows - row);
    by_count[count - 1](call, tile, chunk, row, kv, span, scores, shares + size_t(row) * (call.heads.head_dim + 2));
  }
}

// Adds a share to what was merged so far. A share without weight changes nothing, not by a bit.
void merge(float* merged, const float* share, int dim) {
  const float peak = std::max(merged[dim], share[dim]);
  const F8 kept = F8::all(exp_of(merged[dim] - peak)), added = F8::all(exp_of(share[dim] - peak));
  for (int d = 0; d < dim; d += 8) {
    fma(F8::load(merged + d), kept, F8::load(share + d) * added).store(merged + d);
  }
  merged[dim + 1] = merged[dim + 1] * exp_of(merged[dim] - peak) + share[dim + 1] * exp_of(share[dim] - peak);
  merged[dim] = peak;
}

void begin(float* merged, int num_rows, int dim) {
  for (int row = 0; row < num_rows; ++row, merged += dim + 2) {
    std::fill(merged, merged + dim + 2, 0.0f);
    merged[dim] = kNothingSeen;
  }
}

void merge_rows(float* merged, const float* shares, int num_rows, int dim) {
  for (int row = 0; row < num_rows; ++row) merge(merged + row * (dim + 2), shares + row * (dim + 2), dim);
}

void write_out(const AttentionCall& call, const Tile& tile, const float* merged) {
  const int dim = call.heads.head_dim, group = call.heads.group();
  for (int row = 0; row < tile.num_tokens * group; ++row, merged += dim + 2) {
    float* out = call.out + size_t(tile.first_token + row / group) * call.heads.query_size() +
                 size_t(tile.kv_head * group + row % group) * dim;
    const F8 total = F8::all(merged[dim + 1]);
    for (int d = 0; d < dim; d += 8) (F8::load(merged + d) / total).store(out + d);
  }
}

template <class Stored>
void attend(const AttentionCall& call, AttentionPlan& plan, const TileWork& work, float* scratch) {
  const Tile& tile = plan.tiles()[work.tile];
  const int dim = call.heads.head_dim, num_rows = tile.num_tokens * call.heads.group();
  const size_t share_size = size_t(num_rows) * (dim + 2);
  float* merged = scratch;
  float* share = merged + share_size;
  float* scores = share + share_size;
  if (work.num_chunks == tile.num_chunks) {
    begin(merged, num_rows, dim);
    for (int chunk = work.first_chunk; chunk < work.first_chunk + work.num_chunks; ++chunk) {
      share_of_chunk<Stored>(call, tile, chunk, scores, share);
      merge_rows(merged, share, num_rows, dim);
    }
    write_out(call, tile, merged);
    return;
  }
  float* shares = call.shares + size_t(tile.first_share) * (dim + 2);
  share_of_chunk<Stored>(call, tile, work.first_chunk, scores, shares + (work.first_chunk - tile.first_chunk) * share_size);
  if (!plan.finish_chunk(work.tile)) return;
  begin(merged, num_rows, dim);
  for (int chunk = 0; chunk < tile.num_chunks; ++chunk) merge_rows(merged, shares + chunk * share_size, num_rows, dim);
  write_out(call, tile, merged);
}

}  // namespace

void attend_avx2(const AttentionCall& call, AttentionPlan& plan, const TileWork& work, float* scratch) {
  if (call.cache->kind() == KvKind::kF32) {
    attend<StoredF32>(call, plan, work, scratch);
  } else {
    attend<StoredBf16>(call, plan, work, scratch);
  }
}

}  // namespace noria
