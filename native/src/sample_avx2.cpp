#include <algorithm>
#include <cmath>
#include <limits>

#include "sample_draw_avx2.h"
#include "sample_kernels.h"
#include "sample_math.h"
#include "vec8.h"

namespace noria {
namespace {

// A panel's logits; behind the end of the row NaN, which no comparison admits.
const float* panel_at(const float* logits, int64_t size, int64_t panel, float* padded) {
  const int64_t begin = panel * kSamplePanel, count = std::min(kSamplePanel, size - begin);
  if (count == kSamplePanel) return logits + begin;
  std::fill_n(padded, kSamplePanel, std::numeric_limits<float>::quiet_NaN());
  std::copy_n(logits + begin, count, padded);
  return padded;
}

float maximum(const float* logits, int64_t count) {
  float highest = -std::numeric_limits<float>::infinity();
  for (int64_t i = 0; i < count; ++i) {
    if (std::isnan(logits[i])) return logits[i];
    highest = std::max(highest, logits[i]);
  }
  return highest;
}

float panel_maximum(const float* logits) {
  F8 highest = F8::load(logits);
  __m256 is_nan = _mm256_cmp_ps(highest.v, highest.v, _CMP_UNORD_Q);
  for (int i = 8; i < kSamplePanel; i += 8) {
    const F8 x = F8::load(logits + i);
    is_nan = _mm256_or_ps(is_nan, _mm256_cmp_ps(x.v, x.v, _CMP_UNORD_Q));
    highest = max(highest, x);
  }
  return _mm256_movemask_ps(is_nan) != 0 ? std::numeric_limits<float>::quiet_NaN() : max_of(highest);
}

struct Scaling {
  F8 peak, temperature;

  explicit Scaling(const ScaledRow& row) : peak(F8::all(row.peak)), temperature(F8::all(row.temperature)) {}
  F8 operator()(const float* logits) const { return (F8::load(logits) - peak) / temperature; }
};

__m256 admitted(F8 scaled, F8 floor) { return _mm256_cmp_ps(scaled.v, floor.v, _CMP_GE_OQ); }

int num_lanes(__m256 mask) { return __builtin_popcount(unsigned(_mm256_movemask_ps(mask))); }

F8 rounded(F8 x) { return {_mm256_round_ps(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }

// e^x in units of a weight, before it is rounded to whole ones: noria/sampling/arithmetic.py, operation by operation.
F8 heavy_exp(F8 scaled) {
  const F8 x = max(scaled, F8::all(-32));
  const F8 n = rounded(x * F8::all(1.44269504f));
  const F8 r = (x - n * F8::all(0.693359375f)) - n * F8::all(-2.12194440e-4f);
  const F8 squared = r * r;
  const F8 first = F8::all(1) + r;
  const F8 second = F8::all(0.5f) + r * F8::all(1.0f / 6);
  const F8 third = F8::all(1.0f / 24) + r * F8::all(1.0f / 120);
  const F8 fourth = F8::all(1.0f / 720) + r * F8::all(1.0f / 5040);
  const F8 series = (first + squared * second) + (squared * squared) * (third + squared * fourth);
  const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n.v), _mm256_set1_epi32(127 + kWeightBits));
  return series * F8{_mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23))};
}

// Four numbers from 0 to 2^50, rounded to even. Added to this, a number's last bit is worth 1.
__m256i whole(__m128 x) {
  const __m256d magic = _mm256_set1_pd(0x1.8p52);
  return _mm256_sub_epi64(_mm256_castpd_si256(_mm256_add_pd(_mm256_cvtps_pd(x), magic)), _mm256_castpd_si256(magic));
}

int64_t sum_of(__m256i x) {
  alignas(32) int64_t parts[4];
  _mm256_store_si256(reinterpret_cast<__m256i*>(parts), x);
  return parts[0] + parts[1] + parts[2] + parts[3];
}

// a * b modulo 2^64.
__m256i product(__m256i a, uint64_t b) {
  const __m256i low = _mm256_set1_epi64x(static_cast<int64_t>(b & 0xffffffffu));
  const __m256i high = _mm256_set1_epi64x(static_cast<int64_t>(b >> 32));
  const __m256i across = _mm256_add_epi64(_mm256_mul_epu32(_mm256_srli_epi64(a, 32), low), _mm256_mul_epu32(a, high));
  return _mm256_add_epi64(_mm256_mul_epu32(a, low), _mm256_slli_epi64(across, 32));
}

__m256i mixed(__m256i z) {
  z = product(_mm256_xor_si256(z, _mm256_srli_epi64(z, 30)), kFirstMix);
  z = product(_mm256_xor_si256(z, _mm256_srli_epi64(z, 27)), kSecondMix);
  return _mm256_xor_si256(z, _mm256_srli_epi64(z, 31));
}

// One bit for each of a panel's tokens whose random bits reach the bound.
uint64_t reaching(uint64_t key, uint64_t first_id, uint64_t bound) {
  const __m256i sign = _mm256_set1_epi64x(INT64_MIN);
  const __m256i signed_bound = _mm256_xor_si256(_mm256_set1_epi64x(static_cast<int64_t>(bound)), sign);
  const uint64_t base = key + (first_id + 1) * kGolden;
  __m256i z = _mm256_set_epi64x(int64_t(base + 3 * kGolden), int64_t(base + 2 * kGolden), int64_t(base + kGolden),
                                int64_t(base));
  const __m256i step = _mm256_set1_epi64x(static_cast<int64_t>(4 * kGolden));
  uint64_t found = 0;
  for (int i = 0; i < kSamplePanel; i += 4, z = _mm256_add_epi64(z, step)) {
    const __m256i below = _mm256_cmpgt_epi64(signed_bound, _mm256_xor_si256(mixed(z), sign));
    found |= uint64_t(~_mm256_movemask_pd(_mm256_castsi256_pd(below)) & 0xf) << i;
  }
  return found;
}

// For each set of eight lanes an order that begins with them: a byte a lane.
struct FrontOrders {
  uint64_t of[256];

  constexpr FrontOrders() : of() {
    for (unsigned set = 0; set < 256; ++set) {
      int place = 0;
      for (uint64_t lane = 0; lane < 8; ++lane) {
        if ((set >> lane & 1) != 0) of[set] |= lane << (8 * place++);
      }
    }
  }
  __m256i operator[](unsigned set) const {
    return _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<int64_t>(of[set])));
  }
};

constexpr FrontOrders kFrontOrders;

// The keys (sample_math.h) of eight tokens, in another order.
void store_keys(F8 values, __m256i ids, __m256i order, uint64_t* keys) {
  const __m256i bits = _mm256_castps_si256(_mm256_permutevar8x32_ps((values + F8::zero()).v, order));
  const __m256i is_negative = _mm256_srai_epi32(bits, 31);
  const __m256i positive = _mm256_xor_si256(bits, _mm256_set1_epi32(INT32_MAX));
  const __m256i descending = _mm256_blendv_epi8(positive, bits, is_negative);
  const __m256i ordered = _mm256_permutevar8x32_epi32(ids, order);
  const __m256i low = _mm256_unpacklo_epi32(ordered, descending), high = _mm256_unpackhi_epi32(ordered, descending);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(keys), _mm256_permute2x128_si256(low, high, 0x20));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(keys + 4), _mm256_permute2x128_si256(low, high, 0x31));
}

}  // namespace

void mask_avx2(const float* logits, int64_t size, const uint32_t* allowed, float* masked) {
  const __m256i lanes = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  const F8 none = F8::all(-std::numeric_limits<float>::infinity());
  int64_t id = 0;
  for (; id + 8 <= size; id += 8) {
    const uint32_t bits = allowed[id / 32] >> (id % 32);
    const __m256i set = _mm256_and_si256(_mm256_set1_epi32(static_cast<int32_t>(bits)), lanes);
    const __m256 chosen = _mm256_castsi256_ps(_mm256_cmpeq_epi32(set, lanes));
    F8{_mm256_blendv_ps(none.v, F8::load(logits + id).v, chosen)}.store(masked + id);
  }
  for (; id < size; ++id) {
    const bool is_allowed = (allowed[id / 32] >> (id % 32) & 1) != 0;
    masked[id] = is_allowed ? logits[id] : -std::numeric_limits<float>::infinity();
  }
}

void panel_maxima_avx2(const float* logits, int64_t size, float* maxima) {
  const int64_t num_whole = size / kSamplePanel;
  for (int64_t panel = 0; panel < num_whole; ++panel) maxima[panel] = panel_maximum(logits + panel * kSamplePanel);
  const int64_t begin = num_whole * kSamplePanel;
  if (begin < size) maxima[num_whole] = maximum(logits + begin, size - begin);
}

int64_t total_weight_avx2(const ScaledRow& row, float floor) {
  alignas(32) float padded[kSamplePanel];
  const Scaling scaling(row);
  const F8 lowest = F8::all(floor);
  __m256i total = _mm256_setzero_si256();
  for (int64_t panel = 0; panel < num_sample_panels(row.size); ++panel) {
    if (row.maxima[panel] < floor) continue;
    const float* logits = panel_at(row.logits, row.size, panel, padded);
    for (int i = 0; i < kSamplePanel; i += 8) {
      const F8 scaled = scaling(logits + i);
      const __m256 weights = _mm256_and_ps(heavy_exp(scaled).v, admitted(scaled, lowest));
      total = _mm256_add_epi64(total, whole(_mm256_castps256_ps128(weights)));
      total = _mm256_add_epi64(total, whole(_mm256_extractf128_ps(weights, 1)));
    }
  }
  return sum_of(total);
}

int64_t key_weights_avx2(const uint64_t* keys, int64_t count, int64_t* weights) {
  alignas(32) float values[8];
  alignas(32) int64_t parts[8];
  int64_t total = 0;
  for (int64_t i = 0; i < count; i += 8) {
    const int64_t num_here = std::min<int64_t>(8, count - i);
    for (int64_t lane = 0; lane < 8; ++lane) values[lane] = value_of(keys[std::min(i + lane, count - 1)]);
    const __m256 heavy = heavy_exp(F8::load(values)).v;
    _mm256_store_si256(reinterpret_cast<__m256i*>(parts), whole(_mm256_castps256_ps128(heavy)));
    _mm256_store_si256(reinterpret_cast<__m256i*>(parts + 4), whole(_mm256_extractf128_ps(heavy, 1)));
    for (int64_t lane = 0; lane < num_here; ++lane) total += weights[i + lane] = parts[lane];
  }
  return total;
}

uint32_t draw_keys_avx2(const uint64_t* keys, int64_t count, uint64_t key) {
  const uint64_t first = *std::min_element(keys, keys + count);
  Draw best(key, id_of(first), value_of(first));
  for (int64_t i = 0; i < count; ++i) best.offer(id_of(keys[i]), value_of(keys[i]));
  return best.id();
}

int64_t gather_avx2(const ScaledRow& row, float floor, float ceiling, uint64_t* keys) {
  alignas(32) float padded[kSamplePanel];
  const Scaling scaling(row);
  const F8 lowest = F8::all(floor), above = F8::all(ceiling);
  const __m256i places = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  int64_t count = 0;
  for (int64_t panel = 0; panel < num_sample_panels(row.size); ++panel) {
    if (row.maxima[panel] < floor) continue;
    const float* logits = panel_at(row.logits, row.size, panel, padded);
    for (int i = 0; i < kSamplePanel; i += 8) {
      const F8 scaled = scaling(logits + i);
      const __m256 is_below = _mm256_cmp_ps(scaled.v, above.v, _CMP_LT_OQ);
      const auto found = unsigned(_mm256_movemask_ps(_mm256_and_ps(admitted(scaled, lowest), is_below)));
      const __m256i ids = _mm256_add_epi32(places, _mm256_set1_epi32(int(panel * kSamplePanel + i)));
      // All eight go behind the keys that count; only those that were found begin to count.
      store_keys(scaled, ids, kFrontOrders[found], keys + count);
      count += __builtin_popcount(found);
    }
  }
  return count;
}

uint32_t draw_avx2(const ScaledRow& row, float floor, uint64_t key, float* mass) {
  const int64_t num_panels = num_sample_panels(row.size);
  int64_t first = -1;
  for (int64_t panel = 0; panel < num_panels; ++panel) {
    mass[panel] = exp_of(row.maxima[panel]);
    if (first < 0 && row.maxima[panel] == 0) first = panel * kSamplePanel;
  }
  while (row.scaled(row.logits[first]) != 0) ++first;
  Draw best(key, uint32_t(first), 0.0f);
  for (int64_t panel = 0; panel < num_panels; ++panel) {
    const double reach = best.reach(mass[panel]);
    if (row.maxima[panel] < floor || reach < kLeastReach) continue;
    const int64_t begin = panel * kSamplePanel;
    uint64_t found = reaching(key, uint64_t(begin), bits_bound(reach));
    if (row.size - begin < kSamplePanel) found &= (uint64_t{1} << (row.size - begin)) - 1;
    for (; found != 0; found &= found - 1) {
      const int64_t id = begin + __builtin_ctzll(found);
      const float scaled = row.scaled(row.logits[id]);
      if (scaled >= floor) best.offer(uint32_t(id), scaled);
    }
  }
  return best.id();
}

int64_t num_before_avx2(const float* logits, int64_t size, int64_t index) {
  const F8 value = F8::all(logits[index]);
  int64_t count = 0, i = 0;
  for (; i + 8 <= size; i += 8) count += num_lanes(_mm256_cmp_ps(F8::load(logits + i).v, value.v, _CMP_GT_OQ));
  for (; i < size; ++i) count += logits[i] > logits[index];
  for (i = 0; i + 8 <= index; i += 8) count += num_lanes(_mm256_cmp_ps(F8::load(logits + i).v, value.v, _CMP_EQ_OQ));
  for (; i < index; ++i) count += logits[i] == logits[index];
  return count;
}

}  // namespace noria
