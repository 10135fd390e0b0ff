// Weights of 4 bits, and of 8 with few that are used, times rows in bytes.
#include "tiles_amx.h"

namespace noria {

void w4_panel_avx512_amx(const PackedLinear& weight, const uint8_t* panel, const Activations& x, int64_t begin,
                         int64_t end, float* out) {
  run_matrices<Avx512Amx, W4DotBytes<Avx512Amx>>(w4_panel_avx512_vnni, weight, panel, x, begin, end, out);
}

void w8_panel_avx512_amx(const PackedLinear& weight, const uint8_t* panel, const Activations& x, int64_t begin,
                         int64_t end, float* out) {
  run_matrices<Avx512Amx, W8DotBytes<Avx512Amx>>(w8_panel_avx512_vnni, weight, panel, x, begin, end, out);
}

}  // namespace noria
