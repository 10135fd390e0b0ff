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

// Codes of more bits take rows of 16 at every level: to round rows to 8 would lose twice of what such weights have lost,
// and at the lowest level pairs of their products overflow. So no answer depends on the level.
constexpr int kMostBitsWithBytes = 6;

struct GemmTable {
  PanelKernel f32;
  PanelKernel bf16;
  PanelKernel f16;
  PanelKernel w8_bytes;  // codes of up to kMostBitsWithBytes
  PanelKernel w8_shorts;
  PanelKernel w4_bytes;
  PanelKernel w4_shorts;
  FinishKernel finish;
  void (*norm_rows)(const FloatRows&, const RowNorm&, int64_t begin, int64_t end, float* out);
  void (*quantise_rows)(const FloatRows&, int64_t begin, int64_t end, const QuantRows& out);
  void (*norm_quantise_rows)(const FloatRows&, const RowNorm&, int64_t begin, int64_t end, const QuantRows& out);

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
    return format.code_bits <= kMostBitsWithBytes ? w8_bytes : nullptr;
  }
};

// Of the level that is in use.
const GemmTable& gemm_table();

// x86-64-v3. Rows, norms and epilogues are its at every level: products are what a step's time goes to.
void f32_panel_avx2(const PackedLinear&, const uint8_t*, const Activations&, int64_t, int64_t, float*);
void bf16_panel_avx2(const PackedLinear&, const uint8_t*, const Activations&, int64_t, int64_t, float*);
void f16_panel_avx2(const PackedLinear&, const uint8_t*, const Activations&, int64_t, int64_t, float*);
void w8_shorts_panel_avx2(const PackedLinear&, const uint8_t*, const Activations&, int64_t, int64_t, float*);
void w8_few_panel_avx2(const PackedLinear&, const uint8_t*, const Activations&, int64_t, int64_t, float*);
void w4_panel_avx2(const PackedLinear&, const uint8_t*, const Activations&, int64_t, int64_t, float*);
void w4_shorts_panel_avx2(const PackedLinear&, const uint8_t*, const Activations&, int64_t, int64_t, float*);
void finish_avx2(const PackedLinear&, int64_t, const Epilogue&, int64_t, int64_t, float*);
void norm_rows_avx2(const FloatRows&, const RowNorm&, int64_t, int64_t, float*);
void quantise_rows_avx2(const FloatRows&, int64_t, int64_t, const QuantRows&);
void norm_quantise_rows_avx2(const FloatRows&, const RowNorm&, int64_t, int64_t, const QuantRows&);

// x86-64-v3 with AVX-VNNI.
void w8_panel_avx2_vnni(const PackedLinear&, const uint8_t*, const Activations&, int64_t, int64_t, float*);
void w8_shorts_panel_avx2_vnni(const PackedLinear&, const uint8_t*, const Activations&, int64_t, int64_t, float*);
void w4_panel_avx2_vnni(const PackedLinear&, const uint8_t*, const Activations&, int64_t, int64_t, float*);
void w4_shorts_panel_avx2_vnni(const PackedLinear&, const uint8_t*, const Activations&, int64_t, int64_t, float*);

// AVX-512 (F, BW, VL, DQ) with VNNI.
void f32_panel_avx512_vnni(const PackedLinear&, const uint8_t*, const Activations&, int64_t, int64_t, float*);
void bf16_panel_avx512_vnni(const PackedLinear&, const uint8_t*, const Activations&, int64_t, int64_t, float*);
void f16_panel_avx512_vnni(const PackedLinear&, const uint8_t*, const Activations&, int64_t, int64_t, float*);
void w8_panel_avx512_vnni(const PackedLinear&, const uint8_t*, const Activations&, int64_t, int64_t, float*);
void w8_shorts_panel_avx512_vnni(const PackedLinear&, const uint8_t*, const Activations&, int64_t, int64_t, float*);
void w4_panel_avx512_vnni(const PackedLinear&, const uint8_t*, const Activations&, int64_t, int64_t, float*);
void w4_shorts_panel_avx512_vnni(const PackedLinear&, const uint8_t*, const Activations&, int64_t, int64_t, float*);

// And AMX-TILE and AMX-INT8: for rows in bytes. Of shorts a product would take two, and be no faster than VNNI's.
void w8_panel_avx512_amx(const PackedLinear&, const uint8_t*, const Activations&, int64_t, int64_t, float*);
void w4_panel_avx512_amx(const PackedLinear&, const uint8_t*, const Activations&, int64_t, int64_t, float*);

// Those three in AVX2: what they are held against, in tests and at start.
void w8_panel_emulated_vnni(const PackedLinear&, const uint8_t*, const Activations&, int64_t, int64_t, float*);
void w8_shorts_panel_emulated_vnni(const PackedLinear&, const uint8_t*, const Activations&, int64_t, int64_t, float*);
void w4_panel_emulated_vnni(const PackedLinear&, const uint8_t*, const Activations&, int64_t, int64_t, float*);
void w4_shorts_panel_emulated_vnni(const PackedLinear&, const uint8_t*, const Activations&, int64_t, int64_t, float*);

void f32_panel_emulated_512(const PackedLinear&, const uint8_t*, const Activations&, int64_t, int64_t, float*);
void bf16_panel_emulated_512(const PackedLinear&, const uint8_t*, const Activations&, int64_t, int64_t, float*);
void f16_panel_emulated_512(const PackedLinear&, const uint8_t*, const Activations&, int64_t, int64_t, float*);
void w8_panel_emulated_512(const PackedLinear&, const uint8_t*, const Activations&, int64_t, int64_t, float*);
void w8_shorts_panel_emulated_512(const PackedLinear&, const uint8_t*, const Activations&, int64_t, int64_t, float*);
void w4_panel_emulated_512(const PackedLinear&, const uint8_t*, const Activations&, int64_t, int64_t, float*);
void w4_shorts_panel_emulated_512(const PackedLinear&, const uint8_t*, const Activations&, int64_t, int64_t, float*);

void w8_panel_emulated_amx(const PackedLinear&, const uint8_t*, const Activations&, int64_t, int64_t, float*);
void w4_panel_emulated_amx(const PackedLinear&, const uint8_t*, const Activations&, int64_t, int64_t, float*);

}  // namespace noria
