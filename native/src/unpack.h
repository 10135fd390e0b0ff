// GGUF's quantised blocks, taken apart into codes, scales and minima without rounding anything.
#pragma once

#include <cstdint>
#include <string>

#include "weights.h"

namespace noria {

struct BlockType {
  const char* name;  // as GGUF spells it
  int elements;
  int bytes;
  WeightFormat format;  // what its numbers are packed as, exactly
  // One block to codes [elements], scales and minima [elements / format.group].
  void (*expand)(const uint8_t* block, uint8_t* codes, float* scales, float* minima);
};

// Throws std::invalid_argument for a name that is none of them, and says which there are.
const BlockType& block_type(const std::string& name);

// A row of k numbers, `block_type.bytes` for each of its blocks.
void unpack_row(const BlockType& type, const uint8_t* row, int64_t k, RowCodes& out);

}  // namespace noria
