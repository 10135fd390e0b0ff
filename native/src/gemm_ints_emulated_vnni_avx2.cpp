// Weights of 4 and 8 bits.
#include "gemm_codes.h"
#include "emulated_avx2.h"

namespace noria {

void w4_panel_emulated_vnni(const PackedLinear& weight, const uint8_t* panel, const Activations& x, int64_t begin,
                            int64_t end, float* out) {
  run_quantised<EmulatedVnni, W4DotBytes<EmulatedVnni>>(weight, panel, x, begin, end, out);
}

void w4_shorts_panel_emulated_vnni(const PackedLinear& weight, const uint8_t* panel, const Activations& x,
                                   int64_t begin, int64_t end, float* out) {
  run_quantised<EmulatedVnni, W4Shorts<EmulatedVnni>>(weight, panel, x, begin, end, out);
}

void w8_panel_emulated_vnni(const PackedLinear& weight, const uint8_t* panel, const Activations& x, int64_t begin,
                            int64_t end, float* out) {
  run_quantised<EmulatedVnni, W8DotBytes<EmulatedVnni>>(weight, panel, x, begin, end, out);
}

void w8_shorts_panel_emulated_vnni(const PackedLinear& weight, const uint8_t* panel, const Activations& x,
                                   int64_t begin, int64_t end, float* out) {
  run_quantised<EmulatedVnni, W8Shorts<EmulatedVnni>>(weight, panel, x, begin, end, out);
}

}  // namespace noria
