// Floating point weights to codes of 8 or 4 bits, in groups of 32 along k, rounded to nearest.
#pragma once

#include <cstdint>

#include "stored_floats.h"
#include "weights.h"

namespace noria {

constexpr int kWeightGroup = 32;
constexpr float kLargestHalf = 65504;  // scales and minima are halves, and so may weights be

// w = scale * (code - 128). Scales are those of Q8_0, which is what such a weight then is.
constexpr WeightFormat kRoundedW8 = {WeightKind::kW8, kWeightGroup, 128, false, ScaleKind::kF16, 8};

// w = scale * code + minimum. Chosen by the mean KL divergence of SmolLM2-135M from itself in bfloat16, its channels
// in a random order so that groups are not those it was once quantised in, the embedding in w8: 0.21 with scale and
// minimum fitted by least squares, 0.24 with the plain extremes, and 0.25 around a fixed zero, its scale searched for
// the least error. The last takes half a bit a weight less.
constexpr WeightFormat kRoundedW4 = {WeightKind::kW4, kWeightGroup, 0, true, ScaleKind::kF16, 4};

// Eight numbers at a time. row, out: [k]
void widen_row_avx2(FloatKind kind, const uint8_t* row, int64_t k, float* out);

// The index of the first number that is not within +-largest, NaN among them; k where all are.
int64_t first_beyond_avx2(const float* row, int64_t k, float largest);

// row: [k] within +-kLargestHalf, k a multiple of 32. The scales and minima given are halves.
void quantise_w8_row_avx2(const float* row, int64_t k, RowCodes& out);
void quantise_w4_row_avx2(const float* row, int64_t k, RowCodes& out);

}  // namespace noria
