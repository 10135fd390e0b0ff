#include <algorithm>
#include <numeric>

#include "attention.h"

namespace noria {
namespace {

// Rows of a tile, where a token's own are not more: its scores stay in the second-level cache.
constexpr int kTileRows = 24;
// With fewer pieces of work than this for each thread, the chunks of a tile are computed apart.
constexpr int kEnoughWork = 6;
// And at most so much memory for shares: what the tiles of very long contexts would take beyond it they do whole.
constexpr int64_t kMostShareBytes = 8 << 20;

// The sequences of a step, those with most to compute first: what is left for the end is small.
std::vector<int> longest_first(const Step& step) {
  const auto cost = [&](int sequence) {
    const int num_new = step.query_starts[sequence + 1] - step.query_starts[sequence];
    return int64_t(num_new) * step.context_lens[sequence];
  };
  std::vector<int> order(step.num_sequences);
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int a, int b) { return cost(a) > cost(b); });
  return order;
}

}  // namespace

void AttentionPlan::make(const Step& step, const Heads& heads, const Reach& reach, int num_threads) {
  tiles_.clear();
  work_.clear();
  rows_at_most_ = num_share_rows_ = 0;
  for (const int sequence : longest_first(step)) add_tiles(step, heads, sequence, reach);
  if (done_size_ < tiles_.size()) {
    const size_t size = tiles_.size() * 2;
    done_ = std::make_unique<std::atomic<int>[]>(size);  // may throw: the size is that of what there is
    done_size_ = size;
  }
  for (size_t tile = 0; tile < tiles_.size(); ++tile) done_[tile].store(0, std::memory_order_relaxed);
  const bool is_split = tiles_.size() < static_cast<size_t>(kEnoughWork * num_threads) && num_threads > 1;
  const int64_t most_rows = kMostShareBytes / (share_stride(heads.head_dim) * int64_t(sizeof(float)));
  for (size_t index = 0; index < tiles_.size(); ++index) {
    Tile& tile = tiles_[index];
    const int64_t num_rows = int64_t(tile.num_chunks) * tile.num_tokens * heads.group();
    const int pieces = is_split && num_share_rows_ + num_rows <= most_rows ? tile.num_chunks : 1;
    tile.first_share = num_share_rows_;
    if (pieces > 1) num_share_rows_ += static_cast<int>(num_rows);
    for (int piece = 0; piece < pieces; ++piece) {
      const int first = tile.first_chunk + piece;
      work_.push_back({static_cast<int>(index), first, pieces > 1 ? 1 : tile.num_chunks});
    }
  }
}

void AttentionPlan::add_tiles(const Step& step, const Heads& heads, int sequence, const Reach& reach) {
  const int start = step.query_starts[sequence], end = step.query_starts[sequence + 1];
  const int first_position = step.context_lens[sequence] - (end - start);
  const int size = std::max(1, kTileRows / heads.group());
  rows_at_most_ = std::max(rows_at_most_, std::min(size, end - start) * heads.group());
  for (int head = 0; head < heads.num_kv_heads; ++head) {
    for (int token = start; token < end; token += size) {
      const int count = std::min(size, end - token), position = first_position + (token - start);
      const int end_seen = reach.end(position + count - 1, step.context_lens[sequence]);
      const int first_chunk = reach.first(position) / kChunk, last_chunk = (end_seen - 1) / kChunk;
      const int num_chunks = last_chunk - first_chunk + 1;
      tiles_.push_back({sequence, head, token, count, position, end_seen, first_chunk, num_chunks, 0});
    }
  }
}

bool AttentionPlan::finish_chunk(int tile) {
  const int num_chunks = tiles_[tile].num_chunks;
  if (done_[tile].fetch_add(1, std::memory_order_acq_rel) + 1 < num_chunks) return false;
  done_[tile].store(0, std::memory_order_relaxed);
  return true;
}

size_t attention_scratch(const AttentionPlan& plan, int head_dim) {
  const size_t rows = plan.rows_at_most();
  return rows * (kScoreStride + head_dim + 2 * share_stride(head_dim));  // scores, queries, a share and what is merged
}

}  // namespace noria
