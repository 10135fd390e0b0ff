#include "gemm_peak_chains.h"
#include "tiles_amx.h"

namespace noria {
namespace {

constexpr int kTileChains = 4;
constexpr int kGroup = 32;  // of k, which share a scale
constexpr int64_t kTileMacs = int64_t{kMatrixRows} * kTileColumns * kGroup;

void run_tiles(int64_t num_rounds) {
  TileShapes shapes;
  for (int sums = 0; sums < kTileChains; ++sums) shapes.set(sums, kMatrixRows, kLineBytes);
  shapes.set(4, kMatrixRows, kGroup);
  shapes.set(5, kGroup / 4, kLineBytes);
  shapes.use();
  for (int64_t round = 0; round < num_rounds; ++round) {
    asm volatile("tdpbsud %tmm5, %tmm4, %tmm0");
    asm volatile("tdpbsud %tmm5, %tmm4, %tmm1");
    asm volatile("tdpbsud %tmm5, %tmm4, %tmm2");
    asm volatile("tdpbsud %tmm5, %tmm4, %tmm3");
  }
}

}  // namespace

constexpr Peaks kPeaksAvx512Amx = {
    float_peak<Avx512Vnni>(), short_peak<Avx512Vnni>(), {kTileMacs * kTileChains, run_tiles}};

}  // namespace noria
