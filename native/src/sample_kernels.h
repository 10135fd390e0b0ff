// Passes over a row of logits, panel by panel: what the sampler does to many tokens at once.
#pragma once

#include <cstdint>

namespace noria {

constexpr int64_t kSamplePanel = 64;

inline int64_t num_sample_panels(int64_t size) { return (size + kSamplePanel - 1) / kSamplePanel; }

// Logits [size] without NaN, seen as (logit - peak) / temperature. maxima: the highest of each panel, so seen.
struct ScaledRow {
  const float* logits = nullptr;
  int64_t size = 0;
  float peak = 0;
  float temperature = 1;
  const float* maxima = nullptr;

  float scaled(float logit) const { return (logit - peak) / temperature; }
};

// x86-64-v3.
// masked [size]: the logits of tokens whose bit is set, -infinity for the others. Bits as in SampledRow.
void mask_avx2(const float* logits, int64_t size, const uint32_t* allowed, float* masked);
// A floor admits what is no less; -infinity admits all.
void panel_maxima_avx2(const float* logits, int64_t size, float* maxima);  // NaN where a panel holds one
// The weights of the tokens that the floor admits (noria/sampling/arithmetic.py), added up.
int64_t total_weight_avx2(const ScaledRow& row, float floor);
// Keys (sample_math.h) of the tokens from the floor up to below the ceiling, by ascending id -> how many. Up to
// kGatherRoom keys behind them are written to.
constexpr int64_t kGatherRoom = 8;
int64_t gather_avx2(const ScaledRow& row, float floor, float ceiling, uint64_t* keys);
// The token that the floor admits with the highest value and noise. mass: room for a number a panel.
uint32_t draw_avx2(const ScaledRow& row, float floor, uint64_t key, float* mass);
// The same among tokens given by their keys. count: at least 1.
uint32_t draw_keys_avx2(const uint64_t* keys, int64_t count, uint64_t key);
// The weight of each key's value -> their sum.
int64_t key_weights_avx2(const uint64_t* keys, int64_t count, int64_t* weights);
// How many logits are higher than that at index, or equal and before it.
int64_t num_before_avx2(const float* logits, int64_t size, int64_t index);

}  // namespace noria
