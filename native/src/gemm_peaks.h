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

// float32: multiply-add. w8: multiply pairs of shorts, add. w4: multiply pairs of bytes, add.
// Throws std::invalid_argument for another kind.
Peak peak_of(const std::string& kind);

// Reads num_bytes, a multiple of 64, once.
void read_stream(const uint8_t* data, int64_t num_bytes);

}  // namespace noria
