// Attention over the paged cache: of each token to what its reach says of its own sequence.
//
// A sequence's KV is taken in chunks of 256 tokens counted from its start. A chunk's share of a row (highest score,
// sum of weights, weighted values) is found by itself, and shares are merged in the order of the chunks: the result
// does not depend on the batch, on the tile, or on which thread took what.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "arena.h"
#include "cache.h"
#include "pool.h"
#include "step.h"

namespace noria {

constexpr int kChunk = 256;
constexpr int kScoreStride = kChunk + 16;  // of a tile's rows of scores: not all in the same lines of a cache

// Floats from one row's share to the next: weighted values, the peak, the sum of weights, and up to a whole vector.
constexpr int share_stride(int head_dim) { return head_dim + 8; }

// Which tokens of its sequence a query sees, itself aside.
struct Reach {
  static constexpr int kAll = 1 << 30;  // more than there are positions

  int back = kAll;
  int ahead = 0;

  bool operator==(const Reach& other) const { return back == other.back && ahead == other.ahead; }
  int first(int position) const { return position > back ? position - back : 0; }
  int end(int position, int length) const { return ahead < length - position ? position + ahead + 1 : length; }
};

// Some neighbouring tokens of one sequence, with the query heads of one key/value head: rows token * group + g.
struct Tile {
  int sequence;
  int kv_head;
  int first_token;  // in the step
  int num_tokens;
  int first_position;  // of first_token in its sequence
  int end_position;    // of what any of its rows sees
  int first_chunk;     // the first that any of its rows sees
  int num_chunks;
  int first_share;  // where its chunks' shares are kept when they are computed apart, in rows
};

// One piece of work: a tile's chunks [first_chunk, first_chunk + num_chunks).
struct TileWork {
  int tile;
  int first_chunk;
  int num_chunks;
};

// The attention of one step for one reach; made anew at every step.
class AttentionPlan {
 public:
  void make(const Step& step, const Heads& heads, const Reach& reach, int num_threads);

  const std::vector<Tile>& tiles() const { return tiles_; }
  const std::vector<TileWork>& work() const { return work_; }
  int rows_at_most() const { return rows_at_most_; }
  int num_share_rows() const { return num_share_rows_; }
  // Counts the chunks of a tile that are done; -> whether this was the last of them. Ready for the next layer then.
  bool finish_chunk(int tile);

 private:
  void add_tiles(const Step& step, const Heads& heads, int sequence, const Reach& reach);

  std::vector<Tile> tiles_;
  std::vector<TileWork> work_;
  std::unique_ptr<std::atomic<int>[]> done_;
  size_t done_size_ = 0;
  int rows_at_most_ = 0;
  int num_share_rows_ = 0;
};

// What an instruction set level computes scores and mixed values with; see attention_rows.h.
struct AttentionTable;
extern const AttentionTable kAttentionAvx2;
extern const AttentionTable kAttentionAvx512;
extern const AttentionTable kAttentionEmulated512;

// Of the level that is in use.
const AttentionTable& attention_table();

// What one layer's attention reads and writes.
struct AttentionCall {
  const AttentionTable* table;
  const Step* step;
  const KvCache* cache;
  Heads heads;
  float scale;
  Reach reach;
  int layer;
  const float* queries;  // [T, query_stride]
  int query_stride;
  float* out;  // [T, Hq * D]
  float* shares;  // [num_share_rows, share_stride]
};

// Floats of memory of its own that a thread needs.
size_t attention_scratch(const AttentionPlan& plan, int head_dim);

// Computes one piece of work; called by any thread for each once.
void attend_avx2(const AttentionCall& call, AttentionPlan& plan, const TileWork& work, float* scratch);

// Whether both give the same bits for seeded queries, keys and values.
bool is_same_attention(const AttentionTable& a, const AttentionTable& b);

}  // namespace noria
