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

// 64 columns to 32 outputs: gate and up lie side by side.
void gate_row(Gate gate, const float* sums, F8 (&out)[4]) {
  for (int c = 0; c < 4; ++c) {
    const F8 x = F8::load(sums + c * 8);
    out[c] = (gate == Gate::kSilu ? silu(x) : gelu_tanh(x)) * F8::load(sums + kGluColumns + c * 8);
  }
}

void store_gated(const F8 (&gated)[4], int count, float* out) {
  alignas(32) float numbers[kGluColumns];
  for (int c = 0; c < 4; ++c) gated[c].store(numbers + c * 8);
  std::copy_n(numbers, count, out);
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
      case Epilogue::Kind::kStore: store_row(sums, count, out); break;
      case Epilogue::Kind::kAdd: add_row(sums, count, out); break;
      case Epilogue::Kind::kGate: {
        F8 gated[4];
        gate_row(epilogue.gate, sums, gated);
        if (out != nullptr) store_gated(gated, count, out);
        if (epilogue.quants) quantise_group(gated, epilogue.quants, row, panel);
      }
    }
  }
}

}  // namespace noria
