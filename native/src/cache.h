// The paged KV cache.
#pragma once

#include <cstddef>
#include <cstdint>

#include "arena.h"

namespace noria {

enum class KvKind { kF32, kF16, kBf16, kInt8 };

struct CacheShape {
  int num_layers = 0;
  int num_kv_heads = 0;
  int head_dim = 0;    // a multiple of 8
  int block_size = 0;  // tokens, a multiple of 8
  int num_blocks = 0;
};

// Where one token's key and value of one head go.
struct TokenPlace {
  uint8_t* keys;  // of the group of 8 tokens
  uint8_t* values;
  int lane;  // of the token among them
};

// D floats each, rounded to the kind. What float16 cannot hold becomes the largest number that it can; what is not
// finite becomes NaN there.
void write_token_avx2(KvKind kind, int dim, const float* key, const float* value, const TokenPlace& place);

// By layer, block, head: keys, then values, block_size tokens each, in groups of 8 tokens.
//
// Keys lie so that a vector holds one dimension of 8 tokens: [D][8] in float32 and float16, [D/2][8][2] in bfloat16.
// Values lie token after token: [8][D]; in bfloat16 each [D/16][8][2], dimensions i and i + 8 side by side, and the
// last 8 as they are where D is no multiple of 16.
// In int8 x = scale * code, codes in -127..127. A key, some of whose dimensions are much larger than others, has a
// scale for every 32 of them: 8 tokens' scales in float32, then [32][8] codes, and the last section as short as it is.
// A value has one scale; those of a group, float32, come after its [8][D] codes. What is not finite has NaN for its
// scale.
// A block's layers lie together, so that few blocks in use take few pages: memory is zero until written, and taken
// from the system as it is.
class KvCache {
 public:
  static constexpr int kGroup = 8;
  static constexpr int kSection = 32;  // dimensions of an int8 key that share a scale
  static constexpr int kSectionBytes = kSection * kGroup + kGroup * sizeof(float);  // of 8 tokens

  // Throws std::invalid_argument with the numbers for a shape it cannot hold, OutOfMemory for one too large.
  KvCache(CacheShape shape, KvKind kind);

  const CacheShape& shape() const { return shape_; }
  KvKind kind() const { return kind_; }
  size_t num_bytes() const { return block_bytes_ * shape_.num_blocks * shape_.num_layers; }

  // Where the group of 8 tokens that begins at `offset` in a block lies, for one head.
  const uint8_t* keys(int layer, int block, int head, int offset) const {
    return head_of(layer, block, head) + offset * key_bytes_;
  }
  const uint8_t* values(int layer, int block, int head, int offset) const {
    return head_of(layer, block, head) + keys_bytes_ + offset * value_bytes_;
  }

  // One token's key and value of one head: D floats each, rounded to the cache's kind.
  void write(int layer, int slot, int head, const float* key, const float* value);

  // Every number of the cache (in int8: every scale), as earlier owners may have left it.
  void fill(float value);

  // Throws std::out_of_range.
  void copy_block(int source, int destination);

 private:
  uint8_t* head_of(int layer, int block, int head) const {
    return arena_.data() + (size_t(block) * shape_.num_layers + layer) * block_bytes_ + head * head_bytes_;
  }

  CacheShape shape_;
  KvKind kind_;
  size_t key_bytes_;    // of one token and head
  size_t value_bytes_;  // of one token and head
  size_t keys_bytes_;   // of one head in a block
  size_t head_bytes_;   // keys and values of one head in a block
  size_t block_bytes_;  // a block in one layer
  // And room for a group of keys: attention takes several groups at once and heeds those that there are, and what
  // lies behind the last keys of a sequence, values, is a little shorter in int8.
  Arena arena_;
};

}  // namespace noria
