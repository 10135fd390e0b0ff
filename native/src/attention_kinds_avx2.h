// How attention reads each kind of cache, and its scores against it. For x86-64-v3 units only.
#pragma once

#include <algorithm>

#include "attention_kv_avx2.h"
#include "vec8.h"

namespace noria {

// sums[r][v] += row(r) * vector(v), where what is used most often stays in a register.
template <int R, int V, class Row, class Vector>
[[gnu::always_inline]] inline void add_products(F8 (&sums)[R][V], Row row, Vector vector) {
  if constexpr (R < V) {
    F8 rows[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) rows[r] = row(r);
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) {
      const F8 one = vector(v);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) sums[r][v] = fma(rows[r], one, sums[r][v]);
    }
  } else {
    F8 vectors[V];
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) vectors[v] = vector(v);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const F8 one = row(r);
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) sums[r][v] = fma(one, vectors[v], sums[r][v]);
    }
  }
}

// even_key, odd_key: one dimension of 8 tokens' keys, of a pair. value: of V vectors of 8 dimensions of a value.
struct StoredF32 {
  using Item = float;
  static constexpr bool kHasValueScales = false;
  static F8 even_key(const Item* group, int d) { return F8::load(group + d * kGroup); }
  static F8 odd_key(const Item* group, int d) { return F8::load(group + (d + 1) * kGroup); }
  template <int V>
  static F8 value(const Item* at, int v) {
    return F8::load(at + v * 8);
  }
};

struct StoredF16 {
  using Item = uint16_t;
  static constexpr bool kHasValueScales = false;
  static F8 load(const Item* at) { return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)))}; }
  static F8 even_key(const Item* group, int d) { return load(group + d * kGroup); }
  static F8 odd_key(const Item* group, int d) { return load(group + (d + 1) * kGroup); }
  template <int V>
  static F8 value(const Item* at, int v) {
    return load(at + v * 8);
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
  template <int V>
  static F8 value(const Item* at, int v) {
    if constexpr (V == 1) return load_bf16(at);
    return v % 2 == 0 ? even(line(at + v * 8)) : odd(line(at + (v - 1) * 8));
  }
};

// Codes become floats as they are read: of keys with their scales, of values without: those join the weights.
struct StoredInt8 {
  using Item = int8_t;
  static constexpr bool kHasValueScales = true;
  static F8 load(const Item* at) {
    return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(at))))};
  }
  static F8 key(const Item* group, int d) {
    const Item* section = group + d / KvCache::kSection * KvCache::kSectionBytes;
    const Item* codes = section + kGroup * sizeof(float) + d % KvCache::kSection * kGroup;
    return F8::load(reinterpret_cast<const float*>(section)) * load(codes);
  }
  static F8 even_key(const Item* group, int d) { return key(group, d); }
  static F8 odd_key(const Item* group, int d) { return key(group, d + 1); }
  template <int V>
  static F8 value(const Item* at, int v) {
    return load(at + v * 8);
  }
  // Of a group of 8 tokens' values.
  static F8 value_scales(const Item* group, int dim) {
    return F8::load(reinterpret_cast<const float*>(group + kGroup * dim));
  }
};

// Few rows wait for memory, many for the products: those need no more of the processor's attention on memory.
constexpr bool is_fetching(int num_rows) { return num_rows <= 3; }

// Scores of R rows against V groups. queries: [dim][R]. Every shape adds up the dimensions one after the other.
template <class Stored, int R, int V>
void score_groups(const float* queries, const typename Stored::Item* const* keys, int dim, float* out) {
  constexpr int kLine = 64 / sizeof(typename Stored::Item);
  F8 sums[R][V];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) sums[r][v] = F8::zero();
  }
  for (int start = 0; start < dim; start += 4) {
#pragma GCC unroll 2
    for (int pair = 0; pair < 2; ++pair) {
      const int d = start + 2 * pair;
      add_products(
          sums, [&](int r) { return F8::all(queries[d * R + r]); },
          [&](int v) { return Stored::even_key(keys[v], d); });
      add_products(
          sums, [&](int r) { return F8::all(queries[(d + 1) * R + r]); },
          [&](int v) { return Stored::odd_key(keys[v], d); });
    }
    if constexpr (is_fetching(R)) {
      for (int at = 0; at < 4 * kGroup; at += kLine) {
        for (int v = 0; v < V; ++v) prefetch(keys[std::max(V, kAhead) + v] + start * kGroup + at);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) sums[r][v].store(out + r * kScoreStride + v * kGroup);
  }
}

}  // namespace noria
