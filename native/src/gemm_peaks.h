// What a machine can do at most: the yardsticks that kernels are measured against.
#pragma once

#include <cstdint>
#include <string>

namespace noria {

// A kernel's inner step on registers alone, in independent chains.
struct Peak {
  int64_t macs_per_round;
  void (*run)(int64_t num_rounds);
};

// Of one level: multiply-add of float32, and of integers as rows in 16 and in 8 bits meet their weights.
struct Peaks {
  Peak float32;
  Peak w8;
  Peak w4;
};

extern const Peaks kPeaksAvx2;
extern const Peaks kPeaksAvx2Vnni;
extern const Peaks kPeaksAvx512Vnni;
extern const Peaks kPeaksAvx512Amx;

// Of the level that is in use. kind: float32, w8 or w4. Throws std::invalid_argument for another one.
Peak peak_of(const std::string& kind);

// Reads num_bytes, a multiple of 64, once.
void read_stream(const uint8_t* data, int64_t num_bytes);

}  // namespace noria
