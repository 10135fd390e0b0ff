// Weights of 4 and 8 bits.
#include "gemm_codes.h"
#include "ints8_avx2_vnni.h"

namespace noria {

void w4_panel_avx2_vnni(const PackedLinear& weight, const uint8_t* panel, const Activations& x, int64_t begin,
                        int64_t end, float* out) {
  run_quantised<Avx2Vnni, W4DotBytes<Avx2Vnni>>(weight, panel, x, begin, end, out);
}

void w4_shorts_panel_avx2_vnni(const PackedLinear& weight, const uint8_t* panel, const Activations& x, int64_t begin,
                               int64_t end, float* out) {
  run_quantised<Avx2Vnni, W4Shorts<Avx2Vnni>>(weight, panel, x, begin, end, out);
}

void w8_panel_avx2_vnni(const PackedLinear& weight, const uint8_t* panel, const Activations& x, int64_t begin,
                        int64_t end, float* out) {
  run_quantised<Avx2Vnni, W8DotBytes<Avx2Vnni>>(weight, panel, x, begin, end, out);
}

void w8_shorts_panel_avx2_vnni(const PackedLinear& weight, const uint8_t* panel, const Activations& x, int64_t begin,
                               int64_t end, float* out) {
  run_quantised<Avx2Vnni, W8Shorts<Avx2Vnni>>(weight, panel, x, begin, end, out);
}

}  // namespace noria
