#include <cmath>

#include "gemm_table.h"
#include "quantise_group_avx2.h"
#include "vec8.h"

namespace noria {
namespace {

// Of a row's terms, summed in 4 x 8 lanes and then the rest one by one.
template <class Term>
float sum_row(const float* x, int64_t k, const Term& term) {
  F8 sums[4] = {F8::zero(), F8::zero(), F8::zero(), F8::zero()};
  int64_t i = 0;
  for (; i + 32 <= k; i += 32) {
    for (int lane = 0; lane < 4; ++lane) sums[lane] = term.added_to(sums[lane], F8::load(x + i + lane * 8));
  }
  float total = sum_of((sums[0] + sums[1]) + (sums[2] + sums[3]));
  for (; i < k; ++i) total = term.added_to(total, x[i]);
  return total;
}

struct Plain {
  F8 added_to(F8 sum, F8 x) const { return sum + x; }
  float added_to(float sum, float x) const { return sum + x; }
};

struct Squares {
  F8 added_to(F8 sum, F8 x) const { return fma(x, x, sum); }
  float added_to(float sum, float x) const { return std::fma(x, x, sum); }
};

struct SquaresAround {
  float mean;
  F8 added_to(F8 sum, F8 x) const { return fma(x - F8::all(mean), x - F8::all(mean), sum); }
  float added_to(float sum, float x) const { return std::fma(x - mean, x - mean, sum); }
};

float inverse_root(float total, int64_t k, float eps) { return 1 / std::sqrt(total / float(k) + eps); }

// What the numbers of one row become, by their place: x / sqrt(mean(x^2) + eps) * gamma.
struct Scaled {
  const float* x;
  const float* gamma;
  float factor;

  Scaled(const float* x, int64_t k, const RowNorm& norm)
      : x(x), gamma(norm.gamma), factor(inverse_root(sum_row(x, k, Squares{}), k, norm.eps)) {}

  F8 eight(int64_t i) const { return F8::load(x + i) * F8::all(factor) * F8::load(gamma + i); }
  float one(int64_t i) const { return x[i] * factor * gamma[i]; }
};

// (x - mean) / sqrt(variance + eps) * gamma + beta.
struct Centred {
  const float* x;
  const float* gamma;
  const float* beta;
  float mean;
  float factor;

  Centred(const float* x, int64_t k, const RowNorm& norm)
      : x(x),
        gamma(norm.gamma),
        beta(norm.beta),
        mean(sum_row(x, k, Plain{}) / float(k)),
        factor(inverse_root(sum_row(x, k, SquaresAround{mean}), k, norm.eps)) {}

  F8 eight(int64_t i) const {
    return fma((F8::load(x + i) - F8::all(mean)) * F8::all(factor), F8::load(gamma + i), F8::load(beta + i));
  }
  float one(int64_t i) const { return std::fma((x[i] - mean) * factor, gamma[i], beta[i]); }
};

template <class Row>
void store_row(const Row& row, int64_t k, float* to) {
  int64_t i = 0;
  for (; i + 8 <= k; i += 8) row.eight(i).store(to + i);
  for (; i < k; ++i) to[i] = row.one(i);
}

template <class Row>
void quantise_row(const Row& row, int64_t k, const QuantRows& out, int64_t index) {
  for (int64_t i = 0; i < k; i += kScaleGroup) {
    const F8 group[4] = {row.eight(i), row.eight(i + 8), row.eight(i + 16), row.eight(i + 24)};
    quantise_group(group, out, index, i / kScaleGroup);
  }
}

struct AsItIs {
  const float* x;
  F8 eight(int64_t i) const { return F8::load(x + i); }
};

}  // namespace

void norm_rows_avx2(const FloatRows& x, const RowNorm& norm, int64_t begin, int64_t end, float* out) {
  for (int64_t row = begin; row < end; ++row) {
    const float* from = x.data + row * x.stride;
    if (norm.beta == nullptr) {
      store_row(Scaled(from, x.k, norm), x.k, out + row * x.k);
    } else {
      store_row(Centred(from, x.k, norm), x.k, out + row * x.k);
    }
  }
}

void quantise_rows_avx2(const FloatRows& x, int64_t begin, int64_t end, const QuantRows& out) {
  for (int64_t row = begin; row < end; ++row) quantise_row(AsItIs{x.data + row * x.stride}, x.k, out, row);
}

void norm_quantise_rows_avx2(const FloatRows& x, const RowNorm& norm, int64_t begin, int64_t end,
                             const QuantRows& out) {
  for (int64_t row = begin; row < end; ++row) {
    const float* from = x.data + row * x.stride;
    if (norm.beta == nullptr) {
      quantise_row(Scaled(from, x.k, norm), x.k, out, row);
    } else {
      quantise_row(Centred(from, x.k, norm), x.k, out, row);
    }
  }
}

}  // namespace noria
