#include "gemm_peak_chains.h"
#include "ints16_avx512.h"

namespace noria {

constexpr Peaks kPeaksAvx512Vnni = {float_peak<Avx512Vnni>(), short_peak<Avx512Vnni>(), byte_peak<Avx512Vnni>()};

}  // namespace noria
