// Rows of floating point numbers as files store them, put into packed weights.
#pragma once

#include <cstdint>
#include <string>

#include "pool.h"
#include "weights.h"

namespace noria {

enum class FloatKind { kF32, kF16, kBf16 };

// As checkpoints spell it: F32, F16, BF16. Throws std::invalid_argument for another name.
FloatKind float_kind(const std::string& name);

inline int64_t item_bytes(FloatKind kind) { return kind == FloatKind::kF32 ? 4 : 2; }

// Rows of k numbers, one after another; no alignment is asked for.
struct StoredRows {
  FloatKind kind;
  const uint8_t* data;
  int64_t num_rows;

  const uint8_t* row(int64_t index, int64_t k) const { return data + index * k * item_bytes(kind); }
};

// Rows [first, first + num_rows) of the weight, rounded to its format by all threads of the pool: floats to nearest
// even, w8 and w4 as quantise_weights.h has it. A weight of the rows' own kind takes them as they are, bit for bit.
// Throws std::invalid_argument that names the first row with a number that the format cannot hold or is not finite.
void put_stored_rows(Pool& pool, const PackedLinear& weight, int64_t first, const StoredRows& rows);

}  // namespace noria
