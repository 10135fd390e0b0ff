// Weights in float32, float16 and bfloat16.
#include "gemm_floats.h"
#include "ints8_avx2.h"

namespace noria {

void f32_panel_avx2(const PackedLinear& weight, const uint8_t* panel, const Activations& x, int64_t begin,
                    int64_t end, float* out) {
  run_floats<Avx2, Singles<Avx2, F32<Avx2>>>(weight, panel, x, begin, end, out);
}

void f16_panel_avx2(const PackedLinear& weight, const uint8_t* panel, const Activations& x, int64_t begin,
                    int64_t end, float* out) {
  run_floats<Avx2, Singles<Avx2, F16<Avx2>>>(weight, panel, x, begin, end, out);
}

void bf16_panel_avx2(const PackedLinear& weight, const uint8_t* panel, const Activations& x, int64_t begin,
                     int64_t end, float* out) {
  run_floats<Avx2, Bf16<Avx2>>(weight, panel, x, begin, end, out);
}

}  // namespace noria
