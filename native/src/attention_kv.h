// Where a chunk of the cache lies. For x86-64-v3 units and above.
#pragma once

#include <algorithm>

#include "attention.h"

namespace noria {

constexpr int kGroup = KvCache::kGroup;
constexpr int kGroups = kChunk / kGroup;
constexpr int kAtOnce = 8;  // groups that are taken together, at most
constexpr int kAhead = 4;   // groups that values are fetched ahead

// A chunk of one sequence and head as groups of 8 tokens, in the order in which they are read: all keys, all values.
// Behind them lie the keys that are read next: whoever takes and fetches several groups at once goes beyond the end.
template <class Stored>
struct ChunkKv {
  using Item = typename Stored::Item;

  const Item* groups[2 * kGroups + 2 * kAtOnce];
  int num_groups;

  const Item* const* keys() const { return groups; }
  const Item* const* values() const { return groups + num_groups; }
};

// Tokens of a chunk that a tile sees.
inline int chunk_end(const Tile& tile, int chunk) { return std::min(tile.end_position - chunk * kChunk, kChunk); }

template <class Stored>
ChunkKv<Stored> find_chunk(const AttentionCall& call, const Tile& tile, int chunk) {
  using Item = typename Stored::Item;
  const int block_size = call.cache->shape().block_size;
  const int32_t* table = call.step->block_tables + size_t(tile.sequence) * call.step->table_width;
  const auto find = [&](int position, bool is_value) {
    const int block = table[position / block_size], offset = position % block_size;
    return reinterpret_cast<const Item*>(is_value ? call.cache->values(call.layer, block, tile.kv_head, offset)
                                                  : call.cache->keys(call.layer, block, tile.kv_head, offset));
  };
  ChunkKv<Stored> found;
  const int count = (chunk_end(tile, chunk) + kGroup - 1) / kGroup;
  found.num_groups = count;
  for (int group = 0; group < count; ++group) {
    found.groups[group] = find(chunk * kChunk + group * kGroup, false);
    found.groups[count + group] = find(chunk * kChunk + group * kGroup, true);
  }
  const int last = (tile.end_position - 1) / kGroup;
  for (int group = 0; group < 2 * kAtOnce; ++group) {
    found.groups[2 * count + group] = find(std::min((chunk + 1) * kGroups + group, last) * kGroup, false);
  }
  return found;
}

}  // namespace noria
