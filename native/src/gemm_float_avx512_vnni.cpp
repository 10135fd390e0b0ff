// Weights in float32, float16 and bfloat16.
#include "gemm_floats.h"
#include "ints16_avx512.h"

namespace noria {

void f32_panel_avx512_vnni(const PackedLinear& weight, const uint8_t* panel, const Activations& x, int64_t begin,
                           int64_t end, float* out) {
  run_floats<Avx512Vnni, Singles<Avx512Vnni, F32<Avx512Vnni>>>(weight, panel, x, begin, end, out);
}

void f16_panel_avx512_vnni(const PackedLinear& weight, const uint8_t* panel, const Activations& x, int64_t begin,
                           int64_t end, float* out) {
  run_floats<Avx512Vnni, Singles<Avx512Vnni, F16<Avx512Vnni>>>(weight, panel, x, begin, end, out);
}

void bf16_panel_avx512_vnni(const PackedLinear& weight, const uint8_t* panel, const Activations& x, int64_t begin,
                            int64_t end, float* out) {
  run_floats<Avx512Vnni, Bf16<Avx512Vnni>>(weight, panel, x, begin, end, out);
}

}  // namespace noria
