#include "gemm_peak_chains.h"
#include "tiles_amx.h"

namespace noria {
namespace {

constexpr int kTileChains = 4;
constexpr int64_t kTileMacs = int64_t{kMatrixRows} * kTileColumns * kLineBytes;

void run_tiles(int64_t num_rounds) {
  TileShapes shapes;
  for (int tile = 0; tile < kTileChains + 2; ++tile) shapes.set(tile, kMatrixRows, kLineBytes);
  shapes.use();
  for (int64_t round = 0; round < num_rounds; ++round) {
    asm volatile("tdpbssd %tmm5, %tmm4, %tmm0");
    asm volatile("tdpbssd %tmm5, %tmm4, %tmm1");
    asm volatile("tdpbssd %tmm5, %tmm4, %tmm2");
    asm volatile("tdpbssd %tmm5, %tmm4, %tmm3");
  }
}

}  // namespace

constexpr Peaks kPeaksAvx512Amx = {
    float_peak<Avx512Vnni>(), short_peak<Avx512Vnni>(), {kTileMacs * kTileChains, run_tiles}};

}  // namespace noria
