// The kernels of one instruction set level, behind function pointers: a level is one more table.
#pragma once

#include <cstdint>

#include "gemm.h"

namespace noria {

// Rows [begin, end) of x times one panel -> out [end - begin][64], no bias.
using PanelKernel = void (*)(const PackedLinear& weight, const uint8_t* panel, const Activations& x, int64_t begin,
                             int64_t end, float* out);

// Those rows of one panel, given over to the epilogue: sums [end - begin][64] are consumed.
using FinishKernel = void (*)(const PackedLinear& weight, int64_t panel, const Epilogue& epilogue, int64_t begin,
                              int64_t end, float* sums);

constexpr int kFewBits = 6;

struct GemmTable {
  PanelKernel f32;
  PanelKernel bf16;
  PanelKernel f16;
  PanelKernel w8_shorts;
  PanelKernel w8_of_few_bits;  // codes of up to kFewBits, rows in bytes
  PanelKernel w4_bytes;
  PanelKernel w4_shorts;
  FinishKernel finish;
  void (*rms_norm_rows)(const FloatRows&, const RmsNorm&, int64_t begin, int64_t end, float* out);
  void (*quantise_rows)(const FloatRows&, int64_t begin, int64_t end, const QuantRows& out);
  void (*norm_quantise_rows)(const FloatRows&, const RmsNorm&, int64_t begin, int64_t end, const QuantRows& out);

  // Null where there is none. form: of the rows, where the weight is quantised.
  PanelKernel panel(const WeightFormat& format, RowForm form) const {
    const bool is_bytes = form == RowForm::kBytes;
    switch (format.kind) {
      case WeightKind::kF32: return f32;
      case WeightKind::kBf16: return bf16;
      case WeightKind::kF16: return f16;
      case WeightKind::kW4: return is_bytes ? w4_bytes : w4_shorts;
      default: break;
    }
    if (!is_bytes) return w8_shorts;
    return format.code_bits <= kFewBits ? w8_of_few_bits : nullptr;
  }
};

// The best level that this machine runs.
const GemmTable& gemm_table();

// x86-64-v3.
void f32_panel_avx2(const PackedLinear&, const uint8_t*, const Activations&, int64_t, int64_t, float*);
void bf16_panel_avx2(const PackedLinear&, const uint8_t*, const Activations&, int64_t, int64_t, float*);
void f16_panel_avx2(const PackedLinear&, const uint8_t*, const Activations&, int64_t, int64_t, float*);
void w8_shorts_panel_avx2(const PackedLinear&, const uint8_t*, const Activations&, int64_t, int64_t, float*);
void w8_few_panel_avx2(const PackedLinear&, const uint8_t*, const Activations&, int64_t, int64_t, float*);
void w4_panel_avx2(const PackedLinear&, const uint8_t*, const Activations&, int64_t, int64_t, float*);
void w4_shorts_panel_avx2(const PackedLinear&, const uint8_t*, const Activations&, int64_t, int64_t, float*);
void finish_avx2(const PackedLinear&, int64_t, const Epilogue&, int64_t, int64_t, float*);
void rms_norm_rows_avx2(const FloatRows&, const RmsNorm&, int64_t, int64_t, float*);
void quantise_rows_avx2(const FloatRows&, int64_t, int64_t, const QuantRows&);
void norm_quantise_rows_avx2(const FloatRows&, const RmsNorm&, int64_t, int64_t, const QuantRows&);

}  // namespace noria
