// Weights of 4 and 8 bits.
#include "gemm_codes.h"
#include "ints16_avx512.h"

namespace noria {

void w4_panel_avx512_vnni(const PackedLinear& weight, const uint8_t* panel, const Activations& x, int64_t begin,
                          int64_t end, float* out) {
  run_quantised<Avx512Vnni, W4DotBytes<Avx512Vnni>>(weight, panel, x, begin, end, out);
}

void w4_shorts_panel_avx512_vnni(const PackedLinear& weight, const uint8_t* panel, const Activations& x, int64_t begin,
                                 int64_t end, float* out) {
  run_quantised<Avx512Vnni, W4Shorts<Avx512Vnni>>(weight, panel, x, begin, end, out);
}

void w8_panel_avx512_vnni(const PackedLinear& weight, const uint8_t* panel, const Activations& x, int64_t begin,
                          int64_t end, float* out) {
  run_quantised<Avx512Vnni, W8DotBytes<Avx512Vnni>>(weight, panel, x, begin, end, out);
}

void w8_shorts_panel_avx512_vnni(const PackedLinear& weight, const uint8_t* panel, const Activations& x, int64_t begin,
                                 int64_t end, float* out) {
  run_quantised<Avx512Vnni, W8Shorts<Avx512Vnni>>(weight, panel, x, begin, end, out);
}

}  // namespace noria
