#include "cache.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "weights.h"

namespace noria {
namespace {

std::string number(long long value) { return std::to_string(value); }

CacheShape checked(CacheShape shape) {
  const auto need = [](bool holds, const char* what, int found, const char* wanted) {
    if (!holds) throw std::invalid_argument(std::string(what) + " is " + number(found) + "; it must be " + wanted);
  };
  need(shape.num_layers > 0, "num_layers", shape.num_layers, "positive");
  need(shape.num_kv_heads > 0, "num_kv_heads", shape.num_kv_heads, "positive");
  need(shape.num_blocks > 0, "num_blocks", shape.num_blocks, "positive");
  need(shape.head_dim > 0 && shape.head_dim % 8 == 0, "head_dim", shape.head_dim, "a positive multiple of 8");
  need(shape.block_size > 0 && shape.block_size % KvCache::kGroup == 0, "block_size", shape.block_size,
       "a positive multiple of 8");
  const double num_tokens = double(shape.num_blocks) * shape.block_size;
  if (num_tokens > INT32_MAX || 2 * num_tokens * shape.num_layers * shape.num_kv_heads * shape.head_dim > 0x1p60) {
    throw std::invalid_argument("a cache of " + number(shape.num_blocks) + " blocks of " + number(shape.block_size) +
                                " tokens is beyond what can be addressed");
  }
  return shape;
}

size_t item_bytes(KvKind kind) {
  if (kind == KvKind::kInt8) return 1;
  return kind == KvKind::kF32 ? 4 : 2;
}

// Scales of one token's key and of its value.
int num_key_scales(KvKind kind, int dim) {
  return kind == KvKind::kInt8 ? (dim + KvCache::kSection - 1) / KvCache::kSection : 0;
}
int num_value_scales(KvKind kind) { return kind == KvKind::kInt8 ? 1 : 0; }

}  // namespace

KvCache::KvCache(CacheShape shape, KvKind kind)
    : shape_(checked(shape)),
      kind_(kind),
      key_bytes_(shape.head_dim * item_bytes(kind) + num_key_scales(kind, shape.head_dim) * sizeof(float)),
      value_bytes_(shape.head_dim * item_bytes(kind) + num_value_scales(kind) * sizeof(float)),
      keys_bytes_(key_bytes_ * shape.block_size),
      head_bytes_(keys_bytes_ + value_bytes_ * shape.block_size),
      block_bytes_(head_bytes_ * shape.num_kv_heads),
      arena_(num_bytes() + kGroup * key_bytes_) {}

void KvCache::write(int layer, int slot, int head, const float* key, const float* value) {
  const int offset = slot % shape_.block_size, lane = offset % kGroup;
  uint8_t* base = head_of(layer, slot / shape_.block_size, head);
  uint8_t* keys = base + (offset - lane) * key_bytes_;
  uint8_t* values = base + keys_bytes_ + (offset - lane) * value_bytes_;
  write_token_avx2(kind_, shape_.head_dim, key, value, {keys, values, lane});
}

void KvCache::fill(float value) {
  uint8_t* data = arena_.data();
  if (kind_ == KvKind::kF32 || kind_ == KvKind::kInt8) {  // codes are what the bytes of the value are
    std::fill_n(reinterpret_cast<float*>(data), arena_.num_bytes() / sizeof value, value);
  } else {
    const uint16_t half = kind_ == KvKind::kF16 ? to_f16(value) : to_bf16(value);
    std::fill_n(reinterpret_cast<uint16_t*>(data), arena_.num_bytes() / 2, half);
  }
}

void KvCache::copy_block(int source, int destination) {
  for (const int block : {source, destination}) {
    if (block < 0 || block >= shape_.num_blocks) {
      throw std::out_of_range("block " + number(block) + " of " + number(shape_.num_blocks));
    }
  }
  if (source == destination) return;
  std::memcpy(head_of(0, destination, 0), head_of(0, source, 0), block_bytes_ * shape_.num_layers);
}

}  // namespace noria
