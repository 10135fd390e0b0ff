// From the rows of a q|k|v product to queries ready for attention, and keys and values in the cache.
#pragma once

#include <cstdint>

#include "cache.h"
#include "quantise.h"
#include "step.h"

namespace noria {

// [num_positions, dim]: cosines of dim / 2 angles, then their sines. Dimension i turns with i + dim / 2.
struct RopeTable {
  const float* data = nullptr;
  int64_t num_positions = 0;
  int dim = 0;
};

struct QkvFinish {
  Heads heads;
  RopeTable rope;
  RowNorm query_norm;  // over each head, before the rotation; gamma is null where there is none
  RowNorm key_norm;
  int layer;

  // A unit is one head of one token: its queries, or its keys and values.
  int64_t num_units(const Step& step) const {
    return int64_t(step.num_tokens) * (heads.num_heads + heads.num_kv_heads);
  }
  // rows: [T, Hq * D + 2 * Hkv * D], changed in place. Writes the cache.
  void run(const Step& step, int64_t begin, int64_t end, float* rows, KvCache& cache) const;
};

}  // namespace noria
