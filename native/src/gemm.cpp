#include "gemm.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "gemm_table.h"

namespace noria {
namespace {

void refuse(bool when, const std::string& what) {
  if (when) throw std::invalid_argument(what);
}

}  // namespace

Activation activation_of(const std::string& name) {
  if (name == "silu") return Activation::kSilu;
  if (name == "gelu_pytorch_tanh") return Activation::kGeluTanh;
  if (name == "gelu") return Activation::kGelu;
  if (name == "relu") return Activation::kRelu;
  throw std::invalid_argument("an activation is silu, gelu_pytorch_tanh, gelu or relu, not " + name);
}

RowForm row_form(const WeightFormat& format, Precision precision) {
  const bool takes_bytes = gemm_table().panel(format, RowForm::kBytes) != nullptr;
  return precision == Precision::kInt8 && takes_bytes ? RowForm::kBytes : RowForm::kShorts;
}

void check_gemm(const PackedLinear& weight, const Activations& x, const Epilogue& epilogue) {
  weight.check();
  const std::string shape = "a weight of [" + std::to_string(weight.n) + ", " + std::to_string(weight.k) + "]";
  const bool is_quantised = weight.format.is_quantised();
  const int64_t k = is_quantised ? x.quants.k : x.floats.k;
  refuse(is_quantised ? !x.quants : x.floats.data == nullptr,
         shape + " is given activations of the other kind");
  refuse(gemm_table().panel(weight.format, x.quants.form) == nullptr, shape + " takes activations of 16 bits");
  refuse(k != weight.k, shape + " is given rows of " + std::to_string(k));
  const bool gates = epilogue.kind == Epilogue::Kind::kGate;
  refuse(gates != (weight.order == ColumnOrder::kGlu), "gate and up are packed together and gated, nothing else is");
  const bool may_quantise = gates || epilogue.kind == Epilogue::Kind::kActivate;
  const bool quantises = may_quantise && epilogue.quants;
  refuse(!quantises && epilogue.out == nullptr, "a product has nowhere to go");
  if (!quantises) return;
  refuse(epilogue.quants.k != weight.num_outputs(), shape + " gives " + std::to_string(weight.num_outputs()) +
                                                        " outputs to quantised rows of " +
                                                        std::to_string(epilogue.quants.k));
}

void gemm_block(const PackedLinear& weight, const Activations& x, int64_t panel, int64_t begin, int64_t end,
                const Epilogue& epilogue) {
  alignas(64) float sums[kBlockRows * kPanelColumns];
  gemm_table().panel(weight.format, x.quants.form)(weight, weight.tile(panel, 0), x, begin, end, sums);
  gemm_table().finish(weight, panel, epilogue, begin, end, sums);
}

void gemm_panels(const PackedLinear& weight, const Activations& x, int64_t begin, int64_t end,
                 const Epilogue& epilogue) {
  for (int64_t panel = begin; panel < end; ++panel) {
    for (int64_t row = 0; row < x.num_rows; row += kBlockRows) {
      gemm_block(weight, x, panel, row, std::min(row + kBlockRows, x.num_rows), epilogue);
    }
  }
}

}  // namespace noria
