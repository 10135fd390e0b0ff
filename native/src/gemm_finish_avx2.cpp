// What a panel's sums become.
#include <algorithm>

#include "gemm_table.h"
#include "quantise_group_avx2.h"
#include "vec8.h"

namespace noria {
namespace {

// x / (1 + e^-y). The bound keeps e^-y finite; below it the quotient is as good as zero.
F8 times_sigmoid(F8 x, F8 y) { return x / (F8::all(1) + exp(F8::zero() - max(y, F8::all(-87)))); }

F8 silu(F8 x) { return times_sigmoid(x, x); }

// x / 2 (1 + tanh(u)) = x sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3)
F8 gelu_tanh(F8 x) {
  const F8 cubic = fma(F8::all(0.044715f) * x * x, x, x);
  return times_sigmoid(x, F8::all(1.5957691216f) * cubic);
}

// x Phi(x), Phi(x) = 1/2 + x R(x^2) with the rational R of degrees 5 and 5 for which Phi is within 1e-8 where |x| is
// at most 5.6; beyond it Phi is 0 or 1 as far as can be told.
F8 gelu(F8 x) {
  const F8 end = F8::all(5.6f), bounded = max(F8::zero() - end, min(end, x)), square = bounded * bounded;
  F8 over = F8::all(2.214473469e-08f), under = F8::all(1.180194450e-06f);
  for (const float factor :
       {6.356524292e-06f, 1.738550177e-04f, 4.707285457e-03f, 3.437656521e-02f, 3.989422216e-01f}) {
    over = fma(over, square, F8::all(factor));
  }
  for (const float factor : {7.510309393e-05f, 1.913002899e-03f, 2.894034447e-02f, 2.528349834e-01f, 1.0f}) {
    under = fma(under, square, F8::all(factor));
  }
  const F8 phi = fma(bounded, over / under, F8::all(0.5f));
  const __m256 below = _mm256_cmp_ps(x.v, (F8::zero() - end).v, _CMP_LT_OQ);
  return x * F8{_mm256_andnot_ps(below, phi.v)};
}

F8 relu(F8 x) { return {_mm256_max_ps(_mm256_setzero_ps(), x.v)}; }  // NaN stays: of two, the second is taken

F8 activate(Activation activation, F8 x) {
  switch (activation) {
    case Activation::kSilu: return silu(x);
    case Activation::kGeluTanh: return gelu_tanh(x);
    case Activation::kGelu: return gelu(x);
    default: return relu(x);
  }
}

void add_bias(const float* bias, int64_t num_rows, float* sums) {
  for (int64_t row = 0; row < num_rows; ++row, sums += kPanelColumns) {
    for (int c = 0; c < kPanelColumns; c += 8) (F8::load(sums + c) + F8::load(bias + c)).store(sums + c);
  }
}

void store_row(const float* sums, int count, float* out) {
  if (count == kPanelColumns) {
    for (int c = 0; c < kPanelColumns; c += 8) F8::load(sums + c).store(out + c);
  } else {
    std::copy_n(sums, count, out);
  }
}

void add_row(const float* sums, int count, float* out) {
  int c = 0;
  for (; c + 8 <= count; c += 8) (F8::load(out + c) + F8::load(sums + c)).store(out + c);
  for (; c < count; ++c) out[c] += sums[c];
}

void activate_row(Activation activation, float* sums) {
  for (int c = 0; c < kPanelColumns; c += 8) activate(activation, F8::load(sums + c)).store(sums + c);
}

void quantise_row(const float* numbers, int count, const QuantRows& out, int64_t row, int64_t first) {
  for (int c = 0; c < count; c += kScaleGroup) {
    const F8 group[4] = {F8::load(numbers + c), F8::load(numbers + c + 8), F8::load(numbers + c + 16),
                         F8::load(numbers + c + 24)};
    quantise_group(group, out, row, (first + c) / kScaleGroup);
  }
}

// 64 columns to 32 outputs, in the place of the first: gate and up lie side by side.
void gate_row(Activation activation, float* sums) {
  for (int c = 0; c < kGluColumns; c += 8) {
    (activate(activation, F8::load(sums + c)) * F8::load(sums + kGluColumns + c)).store(sums + c);
  }
}

}  // namespace

void finish_avx2(const PackedLinear& weight, int64_t panel, const Epilogue& epilogue, int64_t begin, int64_t end,
                 float* sums) {
  if (weight.has_bias) add_bias(weight.bias() + panel * kPanelColumns, end - begin, sums);
  const int64_t first = panel * weight.panel_outputs();
  const int count = int(std::min(weight.panel_outputs(), weight.num_outputs() - first));
  for (int64_t row = begin; row < end; ++row, sums += kPanelColumns) {
    float* out = epilogue.out == nullptr ? nullptr : epilogue.out + row * epilogue.stride + first;
    switch (epilogue.kind) {
      case Epilogue::Kind::kStore: store_row(sums, count, out); continue;
      case Epilogue::Kind::kAdd: add_row(sums, count, out); continue;
      case Epilogue::Kind::kActivate: activate_row(epilogue.activation, sums); break;
      case Epilogue::Kind::kGate: gate_row(epilogue.activation, sums); break;
    }
    if (out != nullptr) store_row(sums, count, out);
    if (epilogue.quants) quantise_row(sums, count, epilogue.quants, row, first);
  }
}

}  // namespace noria
