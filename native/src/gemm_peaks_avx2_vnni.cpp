#include "gemm_peak_chains.h"
#include "ints8_avx2_vnni.h"

namespace noria {

constexpr Peaks kPeaksAvx2Vnni = {float_peak<Avx2Vnni>(), short_peak<Avx2Vnni>(), byte_peak<Avx2Vnni>()};

}  // namespace noria
