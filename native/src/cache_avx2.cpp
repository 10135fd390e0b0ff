#include <algorithm>
#include <cstring>

#include "cache.h"
#include "vec8.h"

namespace noria {
namespace {

constexpr int kGroup = KvCache::kGroup;

// Rounded to bfloat16, to even where there are two; in the upper half of each lane, with anything in the lower.
__m256i round_bf16(F8 x) {
  const __m256i bits = _mm256_castps_si256(x.v);
  const __m256i is_odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(is_odd, _mm256_set1_epi32(0x7fff)));
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x.v, x.v, _CMP_UNORD_Q));
  return _mm256_blendv_epi8(rounded, quiet, is_nan);
}

void write_key_f32(const float* key, int dim, float* to) {
  for (int d = 0; d < dim; ++d) to[d * kGroup] = key[d];
}

// Rounded to float16. A key or a value beyond its range is a fault of the format, and saturates; what is not finite is
// one of the model, which must stay to be seen.
__m128i round_f16(F8 x) {
  const F8 most = F8::all(65504.0f);
  const F8 bounded = max(F8::all(-65504.0f), min(most, x)) + (x - x);  // x - x: NaN for what is not finite
  return _mm256_cvtps_ph(bounded.v, _MM_FROUND_TO_NEAREST_INT);
}

void write_key_f16(const float* key, int dim, uint16_t* to) {
  for (int d = 0; d < dim; d += 8) {
    alignas(16) uint16_t halves[8];
    _mm_store_si128(reinterpret_cast<__m128i*>(halves), round_f16(F8::load(key + d)));
    for (int i = 0; i < 8; ++i) to[(d + i) * kGroup] = halves[i];
  }
}

void write_value_f16(const float* value, int dim, uint16_t* to) {
  for (int d = 0; d < dim; d += 8) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + d), round_f16(F8::load(value + d)));
  }
}

// to: where the token's lane of the first pair lies.
void write_key_bf16(const float* key, int dim, uint16_t* to) {
  const __m256i upper = _mm256_set1_epi64x(0xffff0000);
  for (int d = 0; d < dim; d += 8) {
    const __m256i rounded = round_bf16(F8::load(key + d));
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi64(rounded, 32), upper);
    const __m256i even = _mm256_srli_epi64(_mm256_slli_epi64(rounded, 32), 48);
    alignas(32) uint64_t pairs[4];
    _mm256_store_si256(reinterpret_cast<__m256i*>(pairs), _mm256_or_si256(even, odd));
    for (int i = 0; i < 4; ++i) std::memcpy(to + (d + 2 * i) * kGroup, pairs + i, sizeof(uint32_t));
  }
}

void write_value_bf16(const float* value, int dim, uint16_t* to) {
  int d = 0;
  for (; d + 16 <= dim; d += 16) {
    const __m256i low = _mm256_srli_epi32(round_bf16(F8::load(value + d)), 16);
    const __m256i high = round_bf16(F8::load(value + d + 8));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + d), _mm256_blend_epi16(low, high, 0xaa));
  }
  if (d == dim) return;
  const __m256i rest = _mm256_srli_epi32(round_bf16(F8::load(value + d)), 16);
  const __m128i packed = _mm_packus_epi32(_mm256_castsi256_si128(rest), _mm256_extracti128_si256(rest, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to + d), packed);
}

// Codes of n numbers, a multiple of 8; -> their scale.
float to_codes(const float* x, int n, int8_t* codes) {
  constexpr float kSmallest = 1e-35f;  // the inverse of its scale is finite; what is far smaller is zero
  F8 highest = F8::zero(), wrong = F8::zero();
  for (int i = 0; i < n; i += 8) {
    const F8 part = F8::load(x + i);
    highest = max(highest, abs(part));
    wrong = wrong + (part - part);  // NaN for what is not finite
  }
  const float scale = std::max(max_of(highest), kSmallest) / 127;
  const F8 inverse = F8::all(1 / scale);
  for (int i = 0; i < n; i += 8) {
    const __m256i wide = _mm256_cvtps_epi32((F8::load(x + i) * inverse).v);
    const __m128i half = _mm_packs_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(codes + i), _mm_packs_epi16(half, half));
  }
  return scale + sum_of(wrong);
}

void write_key_int8(const float* key, int dim, const TokenPlace& place) {
  uint8_t* section = place.keys;
  for (int first = 0; first < dim; first += KvCache::kSection, section += KvCache::kSectionBytes) {
    const int count = std::min(KvCache::kSection, dim - first);
    int8_t codes[KvCache::kSection];
    reinterpret_cast<float*>(section)[place.lane] = to_codes(key + first, count, codes);
    auto* to = reinterpret_cast<int8_t*>(section + kGroup * sizeof(float)) + place.lane;
    for (int d = 0; d < count; ++d) to[d * kGroup] = codes[d];
  }
}

void write_value_int8(const float* value, int dim, const TokenPlace& place) {
  const float scale = to_codes(value, dim, reinterpret_cast<int8_t*>(place.values) + place.lane * dim);
  reinterpret_cast<float*>(place.values + kGroup * dim)[place.lane] = scale;
}

}  // namespace

void write_token_avx2(KvKind kind, int dim, const float* key, const float* value, const TokenPlace& place) {
  switch (kind) {
    case KvKind::kF32:
      write_key_f32(key, dim, reinterpret_cast<float*>(place.keys) + place.lane);
      std::memcpy(reinterpret_cast<float*>(place.values) + place.lane * dim, value, dim * sizeof(float));
      return;
    case KvKind::kF16:
      write_key_f16(key, dim, reinterpret_cast<uint16_t*>(place.keys) + place.lane);
      write_value_f16(value, dim, reinterpret_cast<uint16_t*>(place.values) + place.lane * dim);
      return;
    case KvKind::kBf16:
      write_key_bf16(key, dim, reinterpret_cast<uint16_t*>(place.keys) + 2 * place.lane);
      write_value_bf16(value, dim, reinterpret_cast<uint16_t*>(place.values) + place.lane * dim);
      return;
    case KvKind::kInt8:
      write_key_int8(key, dim, place);
      write_value_int8(value, dim, place);
      return;
  }
}

}  // namespace noria
