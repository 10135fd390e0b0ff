#include <cmath>

#include "gemm_table.h"
#include "quantise_group_avx2.h"
#include "vec8.h"

namespace noria {
namespace {

// 1 / sqrt(mean(x^2) + eps), summed in 4 x 8 lanes and then the rest one by one.
float inverse_rms(const float* x, int64_t k, float eps) {
  F8 sums[4] = {F8::zero(), F8::zero(), F8::zero(), F8::zero()};
  int64_t i = 0;
  for (; i + 32 <= k; i += 32) {
    for (int lane = 0; lane < 4; ++lane) {
      const F8 part = F8::load(x + i + lane * 8);
      sums[lane] = fma(part, part, sums[lane]);
    }
  }
  float total = sum_of((sums[0] + sums[1]) + (sums[2] + sums[3]));
  for (; i < k; ++i) total = std::fma(x[i], x[i], total);
  return 1 / std::sqrt(total / float(k) + eps);
}

}  // namespace

void rms_norm_rows_avx2(const FloatRows& x, const RmsNorm& norm, int64_t begin, int64_t end, float* out) {
  for (int64_t row = begin; row < end; ++row) {
    const float* from = x.data + row * x.stride;
    float* to = out + row * x.k;
    const float factor = inverse_rms(from, x.k, norm.eps);
    int64_t i = 0;
    for (; i + 8 <= x.k; i += 8) (F8::load(from + i) * F8::all(factor) * F8::load(norm.gamma + i)).store(to + i);
    for (; i < x.k; ++i) to[i] = from[i] * factor * norm.gamma[i];
  }
}

void quantise_rows_avx2(const FloatRows& x, int64_t begin, int64_t end, const QuantRows& out) {
  for (int64_t row = begin; row < end; ++row) {
    const float* from = x.data + row * x.stride;
    for (int64_t i = 0; i < x.k; i += kScaleGroup) {
      const F8 group[4] = {F8::load(from + i), F8::load(from + i + 8), F8::load(from + i + 16),
                           F8::load(from + i + 24)};
      quantise_group(group, out, row, i / kScaleGroup);
    }
  }
}

void norm_quantise_rows_avx2(const FloatRows& x, const RmsNorm& norm, int64_t begin, int64_t end,
                             const QuantRows& out) {
  for (int64_t row = begin; row < end; ++row) {
    const float* from = x.data + row * x.stride;
    const F8 factor = F8::all(inverse_rms(from, x.k, norm.eps));
    for (int64_t i = 0; i < x.k; i += kScaleGroup) {
      F8 group[4];
      for (int part = 0; part < 4; ++part) {
        group[part] = F8::load(from + i + part * 8) * factor * F8::load(norm.gamma + i + part * 8);
      }
      quantise_group(group, out, row, i / kScaleGroup);
    }
  }
}

}  // namespace noria
