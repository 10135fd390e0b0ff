#include "rope.h"

namespace noria {
namespace {

void rotate(float* head, const float* turn, int half) {
  for (int i = 0; i < half; ++i) {
    const float cosine = turn[i], sine = turn[half + i], x = head[i], y = head[half + i];
    head[i] = x * cosine - y * sine;
    head[half + i] = y * cosine + x * sine;
  }
}

}  // namespace

void QkvFinish::run(const Step& step, int64_t begin, int64_t end, float* rows, KvCache& cache) const {
  const int dim = heads.head_dim, units = heads.num_heads + heads.num_kv_heads;
  const int64_t stride = heads.query_size() + 2 * heads.kv_size();
  for (int64_t unit = begin; unit < end; ++unit) {
    const int64_t token = unit / units;
    const int index = static_cast<int>(unit % units), kv_head = index - heads.num_heads;
    float* head = rows + token * stride + int64_t(index) * dim;  // keys come right after the queries
    const RowNorm& norm = kv_head < 0 ? query_norm : key_norm;
    if (norm.gamma != nullptr) norm_rows({head, dim, dim}, norm, 0, 1, head);
    rotate(head, rope.data + int64_t(step.positions[token]) * rope.dim, rope.dim / 2);
    if (kv_head >= 0) cache.write(layer, step.slots[token], kv_head, head, head + heads.kv_size());
  }
}

}  // namespace noria
