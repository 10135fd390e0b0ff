// Chains of a level's steps, none of which waits for another.
#pragma once

#include "gemm_peaks.h"

namespace noria {

constexpr int kChains = 12;  // more than steps are under way, and no more than the smallest level has registers for

template <class Isa, class Vector, class Step>
void run_chains(int64_t num_rounds, Vector start, Step step) {
  Vector sums[kChains];
  for (Vector& sum : sums) sum = start;
  for (int64_t round = 0; round < num_rounds; ++round) {
    for (Vector& sum : sums) {
      Isa::keep(start);
      sum = step(sum, start);
    }
  }
  for (Vector& sum : sums) Isa::keep(sum);
}

template <class Isa>
void run_floats_peak(int64_t num_rounds) {
  using Floats = typename Isa::Floats;
  run_chains<Isa>(num_rounds, Floats::all(1e-3f), [](Floats sum, Floats x) { return fma(x, x, sum); });
}

template <class Isa>
void run_shorts_peak(int64_t num_rounds) {
  using Ints = typename Isa::Ints;
  run_chains<Isa>(num_rounds, Ints::zero(), [](Ints sum, Ints x) { return Isa::dot_shorts(sum, x, x); });
}

template <class Isa>
void run_bytes_peak(int64_t num_rounds) {
  using Ints = typename Isa::Ints;
  run_chains<Isa>(num_rounds, Ints::zero(), [](Ints sum, Ints x) { return Isa::dot_bytes(sum, x, x); });
}

template <class Isa>
constexpr Peak float_peak() {
  return {Isa::kLanes * kChains, run_floats_peak<Isa>};
}

template <class Isa>
constexpr Peak short_peak() {
  return {Isa::kLanes * 2 * kChains, run_shorts_peak<Isa>};
}

template <class Isa>
constexpr Peak byte_peak() {
  return {Isa::kLanes * 4 * kChains, run_bytes_peak<Isa>};
}

}  // namespace noria
