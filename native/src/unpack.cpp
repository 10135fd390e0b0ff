#include "unpack.h"

#include <array>
#include <cstring>
#include <stdexcept>

namespace noria {
namespace {

float half_at(const uint8_t* at) {
  uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  return from_f16(bits);
}

// 16 bytes: numbers 0-15 in the low nibbles, 16-31 in the high ones.
void nibbles(const uint8_t* packed, uint8_t* codes) {
  for (int i = 0; i < 16; ++i) {
    codes[i] = packed[i] & 0x0f;
    codes[16 + i] = packed[i] >> 4;
  }
}

// Bit i of 4 bytes is the fifth bit of number i.
void add_fifth_bits(const uint8_t* at, uint8_t* codes) {
  uint32_t bits;
  std::memcpy(&bits, at, sizeof bits);
  for (int i = 0; i < 32; ++i) codes[i] |= (bits >> i & 1) << 4;
}

// d | 16 bytes
void expand_q4_0(const uint8_t* block, uint8_t* codes, float* scales, float*) {
  scales[0] = half_at(block);
  nibbles(block + 2, codes);
}

// d | m | 16 bytes
void expand_q4_1(const uint8_t* block, uint8_t* codes, float* scales, float* minima) {
  scales[0] = half_at(block);
  minima[0] = half_at(block + 2);
  nibbles(block + 4, codes);
}

// d | 32 fifth bits | 16 bytes
void expand_q5_0(const uint8_t* block, uint8_t* codes, float* scales, float*) {
  scales[0] = half_at(block);
  nibbles(block + 6, codes);
  add_fifth_bits(block + 2, codes);
}

// d | m | 32 fifth bits | 16 bytes
void expand_q5_1(const uint8_t* block, uint8_t* codes, float* scales, float* minima) {
  scales[0] = half_at(block);
  minima[0] = half_at(block + 2);
  nibbles(block + 8, codes);
  add_fifth_bits(block + 4, codes);
}

// d | 32 signed bytes
void expand_q8_0(const uint8_t* block, uint8_t* codes, float* scales, float*) {
  scales[0] = half_at(block);
  for (int i = 0; i < 32; ++i) codes[i] = block[2 + i] ^ 0x80;
}

// d | dmin | 12 bytes of 8 scales and 8 minima of 6 bits, as stored_types.py draws them. The products are exact.
void group_scales(const uint8_t* block, float* scales, float* minima) {
  const float d = half_at(block);
  const float dmin = half_at(block + 2);
  const uint8_t* low = block + 4;
  const uint8_t* middle = block + 8;
  const uint8_t* high = block + 12;
  for (int i = 0; i < 4; ++i) {
    scales[i] = d * float(low[i] & 0x3f);
    minima[i] = -(dmin * float(middle[i] & 0x3f));
    scales[4 + i] = d * float((high[i] & 0x0f) | (low[i] >> 2 & 0x30));
    minima[4 + i] = -(dmin * float(high[i] >> 4 | (middle[i] >> 2 & 0x30)));
  }
}

// 32 bytes hold two groups: one in the low nibbles, the next in the high ones.
void group_nibbles(const uint8_t* packed, uint8_t* codes) {
  for (int pair = 0; pair < 4; ++pair) {
    for (int i = 0; i < 32; ++i) {
      codes[pair * 64 + i] = packed[pair * 32 + i] & 0x0f;
      codes[pair * 64 + 32 + i] = packed[pair * 32 + i] >> 4;
    }
  }
}

// d | dmin | 12 bytes of scales | 128 bytes
void expand_q4_k(const uint8_t* block, uint8_t* codes, float* scales, float* minima) {
  group_scales(block, scales, minima);
  group_nibbles(block + 16, codes);
}

// d | dmin | 12 bytes of scales | 32 bytes, bit g of byte i the fifth bit of number i of group g | 128 bytes
void expand_q5_k(const uint8_t* block, uint8_t* codes, float* scales, float* minima) {
  group_scales(block, scales, minima);
  group_nibbles(block + 48, codes);
  const uint8_t* fifth = block + 16;
  for (int g = 0; g < 8; ++g) {
    for (int i = 0; i < 32; ++i) codes[g * 32 + i] |= (fifth[i] >> g & 1) << 4;
  }
}

// 128 bytes of low nibbles | 64 of top bit pairs | 16 signed scales | d. Half a block is 128 numbers: 64 bytes of
// nibbles, low ones first, and 32 bytes whose bit pairs top numbers 0-31, 32-63, 64-95 and 96-127.
void expand_q6_k(const uint8_t* block, uint8_t* codes, float* scales, float*) {
  const float d = half_at(block + 208);
  for (int g = 0; g < 16; ++g) scales[g] = d * float(int8_t(block[192 + g]));
  for (int half = 0; half < 2; ++half) {
    const uint8_t* low = block + half * 64;
    const uint8_t* top = block + 128 + half * 32;
    uint8_t* out = codes + half * 128;
    for (int i = 0; i < 64; ++i) {
      out[i] = (low[i] & 0x0f) | (top[i % 32] >> (i / 32 * 2) & 3) << 4;
      out[64 + i] = low[i] >> 4 | (top[i % 32] >> (4 + i / 32 * 2) & 3) << 4;
    }
  }
}

constexpr WeightKind kind_of(int bits) { return bits == 4 ? WeightKind::kW4 : WeightKind::kW8; }

// Around the middle of the codes.
constexpr WeightFormat symmetric(int bits, int group, ScaleKind scales) {
  return {kind_of(bits), group, 1 << (bits - 1), false, scales, bits};
}

constexpr WeightFormat with_minima(int bits, ScaleKind scales) { return {kind_of(bits), 32, 0, true, scales, bits}; }

// The K types' scales are products that a half cannot hold.
constexpr std::array<BlockType, 8> kTypes = {{
    {"Q4_0", 32, 18, symmetric(4, 32, ScaleKind::kF16), expand_q4_0},
    {"Q4_1", 32, 20, with_minima(4, ScaleKind::kF16), expand_q4_1},
    {"Q5_0", 32, 22, symmetric(5, 32, ScaleKind::kF16), expand_q5_0},
    {"Q5_1", 32, 24, with_minima(5, ScaleKind::kF16), expand_q5_1},
    {"Q8_0", 32, 34, symmetric(8, 32, ScaleKind::kF16), expand_q8_0},
    {"Q4_K", 256, 144, with_minima(4, ScaleKind::kF32), expand_q4_k},
    {"Q5_K", 256, 176, with_minima(5, ScaleKind::kF32), expand_q5_k},
    {"Q6_K", 256, 210, symmetric(6, 16, ScaleKind::kF32), expand_q6_k},
}};

}  // namespace

const BlockType& block_type(const std::string& name) {
  std::string known;
  for (const BlockType& type : kTypes) {
    if (name == type.name) return type;
    known += known.empty() ? type.name : std::string(", ") + type.name;
  }
  throw std::invalid_argument("no quantised block type '" + name + "'; there are " + known);
}

void unpack_row(const BlockType& type, const uint8_t* row, int64_t k, RowCodes& out) {
  if (k % type.elements != 0) {
    throw std::invalid_argument("a row of " + std::to_string(k) + " numbers is no whole number of " +
                                type.name + " blocks of " + std::to_string(type.elements));
  }
  out.codes.resize(k);
  out.scales.resize(k / type.format.group);
  out.minima.resize(type.format.has_minima ? k / type.format.group : 0);
  for (int64_t at = 0; at < k; at += type.elements, row += type.bytes) {
    const int64_t group = at / type.format.group;
    float* minima = type.format.has_minima ? out.minima.data() + group : nullptr;
    type.expand(row, out.codes.data() + at, out.scales.data() + group, minima);
  }
}

}  // namespace noria
