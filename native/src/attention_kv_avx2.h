// How attention reads each kind of cache. For x86-64-v3 units only.
#pragma once

#include <algorithm>

#include "attention.h"
#include "vec8.h"

namespace noria {

constexpr int kGroup = KvCache::kGroup;
constexpr int kGroups = kChunk / kGroup;
constexpr int kAtOnce = 8;  // groups that are taken together, at most
constexpr int kAhead = 4;   // groups that values are fetched ahead

// One dimension of 8 tokens' keys (of a pair, the even or the odd); V vectors of 8 dimensions of a token's value.
struct StoredF32 {
  using Item = float;
  static F8 even_key(const Item* group, int d) { return F8::load(group + d * kGroup); }
  static F8 odd_key(const Item* group, int d) { return F8::load(group + (d + 1) * kGroup); }
  template <int V>
  static F8 value(const Item* at, int v) {
    return F8::load(at + v * 8);
  }
};

struct StoredBf16 {
  using Item = uint16_t;
  static __m256i line(const Item* at) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)); }
  static F8 even(__m256i pairs) { return {_mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16))}; }
  static F8 odd(__m256i pairs) {
    return {_mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(static_cast<int>(0xffff0000u))))};
  }
  static F8 even_key(const Item* group, int d) { return even(line(group + d * kGroup)); }
  static F8 odd_key(const Item* group, int d) { return odd(line(group + d * kGroup)); }
  template <int V>
  static F8 value(const Item* at, int v) {
    if constexpr (V == 1) return load_bf16(at);
    return v % 2 == 0 ? even(line(at + v * 8)) : odd(line(at + (v - 1) * 8));
  }
};

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
inline int chunk_end(const Tile& tile, int chunk) {
  return std::min(tile.first_position + tile.num_tokens - chunk * kChunk, kChunk);
}

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
  const int last = (tile.first_position + tile.num_tokens - 1) / kGroup;
  for (int group = 0; group < 2 * kAtOnce; ++group) {
    found.groups[2 * count + group] = find(std::min((chunk + 1) * kGroups + group, last) * kGroup, false);
  }
  return found;
}

}  // namespace noria
