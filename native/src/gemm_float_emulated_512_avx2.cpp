// Weights in float32, float16 and bfloat16.
#include "gemm_floats.h"
#include "emulated_avx2.h"

namespace noria {

void f32_panel_emulated_512(const PackedLinear& weight, const uint8_t* panel, const Activations& x, int64_t begin,
                            int64_t end, float* out) {
  run_floats<Emulated512, Singles<Emulated512, F32<Emulated512>>>(weight, panel, x, begin, end, out);
}

void f16_panel_emulated_512(const PackedLinear& weight, const uint8_t* panel, const Activations& x, int64_t begin,
                            int64_t end, float* out) {
  run_floats<Emulated512, Singles<Emulated512, F16<Emulated512>>>(weight, panel, x, begin, end, out);
}

void bf16_panel_emulated_512(const PackedLinear& weight, const uint8_t* panel, const Activations& x, int64_t begin,
                             int64_t end, float* out) {
  run_floats<Emulated512, Bf16<Emulated512>>(weight, panel, x, begin, end, out);
}

}  // namespace noria
