// Weights of 4 bits, and of 8 with few that are used, times rows in bytes.
#include "tiles_emulated_avx2.h"

namespace noria {

void w4_panel_emulated_amx(const PackedLinear& weight, const uint8_t* panel, const Activations& x, int64_t begin,
                           int64_t end, float* out) {
  run_matrices<EmulatedAmx, W4DotBytes<EmulatedAmx>>(w4_panel_emulated_512, weight, panel, x, begin, end, out);
}

void w8_panel_emulated_amx(const PackedLinear& weight, const uint8_t* panel, const Activations& x, int64_t begin,
                           int64_t end, float* out) {
  run_matrices<EmulatedAmx, W8DotBytes<EmulatedAmx>>(w8_panel_emulated_512, weight, panel, x, begin, end, out);
}

}  // namespace noria
