#include <algorithm>
#include <cmath>
#include <cstring>

#include "quantise_weights.h"
#include "vec8.h"

namespace noria {
namespace {

constexpr int kTopCode = 15;  // of 4 bits
// How often a group's scale and minimum are fitted to its codes and the codes made anew: later rounds gain little.
constexpr int kFits = 2;

F8 load_as(FloatKind kind, const uint8_t* at) {
  if (kind == FloatKind::kF16) return load_f16(at);
  if (kind == FloatKind::kBf16) return load_bf16(reinterpret_cast<const uint16_t*>(at));
  return F8::load(reinterpret_cast<const float*>(at));
}

float half_of(float x) { return from_f16(to_f16(x)); }

// The smallest half that is not below x >= 0: with it as a scale no code falls beyond the last.
float half_at_least(float x) {
  const uint16_t nearest = to_f16(x);
  return from_f16(from_f16(nearest) < x ? nearest + 1 : nearest);
}

F8 magnitude(F8 x) { return {_mm256_andnot_ps(_mm256_set1_ps(-0.0f), x.v)}; }
float min_of(F8 x) { return -max_of(F8::zero() - x); }

struct Group {
  F8 x[4];

  static Group load(const float* at) {
    Group group;
    for (int i = 0; i < 4; ++i) group.x[i] = F8::load(at + 8 * i);
    return group;
  }
};

float sum_of_four(const F8 (&x)[4]) { return sum_of((x[0] + x[1]) + (x[2] + x[3])); }

// w = scale * code + minimum of one group: codes as whole numbers in [0, 15], and the sum of the squared errors.
struct Fit {
  float scale = 0;
  float minimum = 0;
  F8 codes[4];
  float error = 0;

  void round(const Group& group) {
    const F8 inverse = F8::all(scale > 0 ? 1 / scale : 0);
    F8 squares[4];
    for (int i = 0; i < 4; ++i) {
      const F8 steps = (group.x[i] - F8::all(minimum)) * inverse;
      const F8 bounded = min(max(steps, F8::zero()), F8::all(kTopCode));
      codes[i] = {_mm256_round_ps(bounded.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
      const F8 lacks = fma(F8::all(scale), codes[i], F8::all(minimum)) - group.x[i];
      squares[i] = lacks * lacks;
    }
    error = sum_of_four(squares);
  }

  // The scale and minimum of least squared error for these codes; as before where all codes are one.
  Fit refitted(const Group& group) const {
    F8 squares[4], products[4];
    for (int i = 0; i < 4; ++i) {
      squares[i] = codes[i] * codes[i];
      products[i] = codes[i] * group.x[i];
    }
    const float c = sum_of_four(codes), cc = sum_of_four(squares);
    const float x = sum_of_four(group.x), cx = sum_of_four(products);
    const float spread = kWeightGroup * cc - c * c;
    Fit fit;
    const float exact = spread > 0 ? (kWeightGroup * cx - c * x) / spread : scale;
    fit.scale = half_of(exact);
    fit.minimum = half_of((x - exact * c) / kWeightGroup);
    return fit;
  }
};

Fit best_fit(const Group& group) {
  const F8 upper = max(max(group.x[0], group.x[1]), max(group.x[2], group.x[3]));
  const F8 lower = min(min(group.x[0], group.x[1]), min(group.x[2], group.x[3]));
  const float lowest = min_of(lower), highest = max_of(upper);
  Fit fit;
  fit.minimum = half_of(lowest);
  fit.scale = half_of((highest - lowest) / kTopCode);
  fit.round(group);
  Fit best = fit;
  for (int round = 0; round < kFits; ++round) {
    fit = fit.refitted(group);
    fit.round(group);
    if (fit.error < best.error) best = fit;
  }
  return best;
}

// 32 numbers of at most 127, rounded to nearest and then flipped, as bytes.
void store_codes(const F8 (&numbers)[4], __m256i flip, uint8_t* at) {
  __m256i rounded[4];
  for (int i = 0; i < 4; ++i) rounded[i] = _mm256_cvtps_epi32(numbers[i].v);
  const __m256i upper = _mm256_packs_epi32(rounded[0], rounded[1]);
  const __m256i lower = _mm256_packs_epi32(rounded[2], rounded[3]);
  // Packing works on halves of registers; this puts their quarters into order.
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  const __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(upper, lower), order);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), _mm256_xor_si256(bytes, flip));
}

void resize(RowCodes& out, int64_t k, bool has_minima) {
  out.codes.resize(k);
  out.scales.resize(k / kWeightGroup);
  out.minima.resize(has_minima ? k / kWeightGroup : 0);
}

}  // namespace

void widen_row_avx2(FloatKind kind, const uint8_t* row, int64_t k, float* out) {
  const int64_t bytes = item_bytes(kind);
  int64_t i = 0;
  for (; i + 8 <= k; i += 8) load_as(kind, row + i * bytes).store(out + i);
  if (i == k) return;
  uint8_t last[32] = {};
  std::memcpy(last, row + i * bytes, (k - i) * bytes);
  float wide[8];
  load_as(kind, last).store(wide);
  std::copy_n(wide, k - i, out + i);
}

int64_t first_beyond_avx2(const float* row, int64_t k, float largest) {
  const auto fits = [largest](float x) { return std::fabs(x) <= largest; };
  int64_t i = 0;
  for (; i + 8 <= k; i += 8) {
    const __m256 within = _mm256_cmp_ps(magnitude(F8::load(row + i)).v, _mm256_set1_ps(largest), _CMP_LE_OQ);
    if (_mm256_movemask_ps(within) != 0xff) break;
  }
  while (i < k && fits(row[i])) ++i;
  return i;
}

void quantise_w8_row_avx2(const float* row, int64_t k, RowCodes& out) {
  resize(out, k, false);
  for (int64_t g = 0; g < k / kWeightGroup; ++g) {
    const Group group = Group::load(row + g * kWeightGroup);
    const F8 upper = max(magnitude(group.x[0]), magnitude(group.x[1]));
    const F8 lower = max(magnitude(group.x[2]), magnitude(group.x[3]));
    const float scale = half_at_least(max_of(max(upper, lower)) / 127);
    out.scales[g] = scale;
    const F8 inverse = F8::all(scale > 0 ? 1 / scale : 0);
    F8 steps[4];
    for (int i = 0; i < 4; ++i) steps[i] = group.x[i] * inverse;
    store_codes(steps, _mm256_set1_epi8(char(0x80)), out.codes.data() + g * kWeightGroup);
  }
}

void quantise_w4_row_avx2(const float* row, int64_t k, RowCodes& out) {
  resize(out, k, true);
  for (int64_t g = 0; g < k / kWeightGroup; ++g) {
    const Fit fit = best_fit(Group::load(row + g * kWeightGroup));
    out.scales[g] = fit.scale;
    out.minima[g] = fit.minimum;
    store_codes(fit.codes, _mm256_setzero_si256(), out.codes.data() + g * kWeightGroup);
  }
}

}  // namespace noria
