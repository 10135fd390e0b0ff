// Attention by two tables on the same queries, keys and values.
#include <cstring>
#include <vector>

#include "attention_rows.h"
#include "draw.h"

namespace noria {
namespace {

constexpr int kTokens = 2 * kAtOnce * kGroup;
constexpr int kDims[] = {8, 72, 120};  // whole vectors of every width, and what is left of them
constexpr Seen kSpan = {3, kTokens - 2};

// A sequence in a cache of one head and layer, and queries.
struct Drawn {
  Drawn(KvKind kind, int dim, Draw& draw) : cache({1, 1, dim, kTokens, 1}, kind), queries(kRows * dim) {
    std::vector<float> key(dim), value(dim);
    for (int token = 0; token < kTokens; ++token) {
      for (int d = 0; d < dim; ++d) {
        key[d] = draw.number();
        value[d] = draw.number();
      }
      cache.write(0, token, 0, key.data(), value.data());
    }
    for (float& query : queries) query = draw.number();
    for (float& weight : weights) weight = draw.number();
  }

  template <class Stored>
  ChunkKv<Stored> kv() const {
    const auto find = [&](const uint8_t* at) { return reinterpret_cast<const typename Stored::Item*>(at); };
    constexpr int kCount = kTokens / kGroup;
    ChunkKv<Stored> found;
    found.num_groups = kCount;
    for (int group = 0; group < kCount; ++group) {
      found.groups[group] = find(cache.keys(0, 0, 0, group * kGroup));
      found.groups[kCount + group] = find(cache.values(0, 0, 0, group * kGroup));
    }
    for (int ahead = 0; ahead < 2 * kAtOnce; ++ahead) found.groups[2 * kCount + ahead] = found.groups[0];
    return found;
  }

  KvCache cache;
  std::vector<float> queries;
  float weights[kRows * kScoreStride];
};

// Scores, and mixed values behind them.
template <class Stored>
std::vector<float> computed(const RowsKernel<Stored>& kernel, const Drawn& drawn, int dim) {
  const ChunkKv<Stored> kv = drawn.kv<Stored>();
  std::vector<float> out(kRows * (kScoreStride + share_stride(dim)));
  for (int group = 0; group < kv.num_groups; group += kernel.num_groups) {
    kernel.score(drawn.queries.data(), kv.keys() + group, dim, out.data() + group * kGroup);
  }
  kernel.mix(drawn.weights, kv, kSpan, dim, out.data() + kRows * kScoreStride);
  return out;
}

template <class Stored>
bool is_same(KvKind kind, const RowsKernels<Stored>& a, const RowsKernels<Stored>& b, Draw& draw) {
  for (const int dim : kDims) {
    const Drawn drawn(kind, dim, draw);
    for (int rows = 1; rows <= kRows; ++rows) {
      const auto found = computed(a.for_rows(rows), drawn, dim), expected = computed(b.for_rows(rows), drawn, dim);
      if (std::memcmp(found.data(), expected.data(), found.size() * sizeof(float)) != 0) return false;
    }
  }
  return true;
}

}  // namespace

bool is_same_attention(const AttentionTable& a, const AttentionTable& b) {
  Draw draw;
  return is_same(KvKind::kF32, a.f32, b.f32, draw) && is_same(KvKind::kF16, a.f16, b.f16, draw) &&
         is_same(KvKind::kBf16, a.bf16, b.bf16, draw) && is_same(KvKind::kInt8, a.int8, b.int8, draw);
}

}  // namespace noria
