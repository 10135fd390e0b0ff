// How attention reads each kind of cache. For x86-64-v3 units and above.
#pragma once

#include <algorithm>

#include "attention_kv.h"
#include "attention_lanes.h"
#include "vec8.h"

namespace noria {

// sums[r][v] += row(r) * vector(v), where what is used most often stays in a register.
template <class Floats, int R, int V, class Row, class Vector>
[[gnu::always_inline]] inline void add_products(Floats (&sums)[R][V], Row row, Vector vector) {
  if constexpr (R < V) {
    Floats rows[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) rows[r] = row(r);
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) {
      const Floats one = vector(v);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) sums[r][v] = fma(rows[r], one, sums[r][v]);
    }
  } else {
    Floats vectors[V];
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) vectors[v] = vector(v);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const Floats one = row(r);
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) sums[r][v] = fma(one, vectors[v], sums[r][v]);
    }
  }
}

// even_key, odd_key: one dimension of 8 tokens' keys, of a pair. value: of V vectors of dimensions of a value.
struct StoredF32 {
  using Item = float;
  static constexpr bool kHasValueScales = false;
  static F8 even_key(const Item* group, int d) { return F8::load(group + d * kGroup); }
  static F8 odd_key(const Item* group, int d) { return F8::load(group + (d + 1) * kGroup); }
  template <class Lanes, int V>
  static auto value(const Item* at, int v) {
    return Lanes::load(at + v * Lanes::kEights * 8);
  }
};

struct StoredF16 {
  using Item = uint16_t;
  static constexpr bool kHasValueScales = false;
  static F8 even_key(const Item* group, int d) { return Lanes8::halves(group + d * kGroup); }
  static F8 odd_key(const Item* group, int d) { return Lanes8::halves(group + (d + 1) * kGroup); }
  template <class Lanes, int V>
  static auto value(const Item* at, int v) {
    return Lanes::halves(at + v * Lanes::kEights * 8);
  }
};

struct StoredBf16 {
  using Item = uint16_t;
  static constexpr bool kHasValueScales = false;
  static __m256i line(const Item* at) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)); }
  static F8 even(__m256i pairs) { return {_mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16))}; }
  static F8 odd(__m256i pairs) {
    return {_mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(static_cast<int>(0xffff0000u))))};
  }
  static F8 even_key(const Item* group, int d) { return even(line(group + d * kGroup)); }
  static F8 odd_key(const Item* group, int d) { return odd(line(group + d * kGroup)); }
  template <class Lanes, int V>
  static auto value(const Item* at, int v) {
    return Lanes::of([&](int i) { return eight<V * Lanes::kEights>(at, v * Lanes::kEights + i); });
  }
  // One of `count` F8.
  template <int count>
  static F8 eight(const Item* at, int index) {
    if constexpr (count == 1) return load_bf16(at);
    return index % 2 == 0 ? even(line(at + index * 8)) : odd(line(at + (index - 1) * 8));
  }
};

// Codes become floats as they are read: of keys with their scales, of values without: those join the weights.
struct StoredInt8 {
  using Item = int8_t;
  static constexpr bool kHasValueScales = true;
  static F8 key(const Item* group, int d) {
    const Item* section = group + d / KvCache::kSection * KvCache::kSectionBytes;
    const Item* codes = section + kGroup * sizeof(float) + d % KvCache::kSection * kGroup;
    return F8::load(reinterpret_cast<const float*>(section)) * Lanes8::codes(codes);
  }
  static F8 even_key(const Item* group, int d) { return key(group, d); }
  static F8 odd_key(const Item* group, int d) { return key(group, d + 1); }
  template <class Lanes, int V>
  static auto value(const Item* at, int v) {
    return Lanes::codes(at + v * Lanes::kEights * 8);
  }
  // Of a group of 8 tokens' values.
  static F8 value_scales(const Item* group, int dim) {
    return F8::load(reinterpret_cast<const float*>(group + kGroup * dim));
  }
};

}  // namespace noria
