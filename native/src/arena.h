// Memory for a model's large arrays: huge pages where the kernel has them, faulted in before serving.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pool.h"

namespace noria {

// One mapping, zeroed, freed with its owner. Not movable: others point into it.
class Arena {
 public:
  // Throws std::bad_alloc when the system refuses. pool: its threads touch the pages first; null touches none.
  Arena(size_t num_bytes, Pool* pool);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  uint8_t* data() const { return data_; }
  size_t num_bytes() const { return num_bytes_; }

 private:
  uint8_t* data_ = nullptr;
  size_t num_bytes_;
};

// 64-byte aligned memory of an activation. It grows to the largest step so far, and what it held is then lost.
class Room {
 public:
  Room() = default;
  ~Room();
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;

  // At least num_bytes; throws std::bad_alloc.
  void reserve(size_t num_bytes);
  uint8_t* data() const { return data_; }
  float* floats() const { return reinterpret_cast<float*>(data_); }

 private:
  uint8_t* data_ = nullptr;
  size_t num_bytes_ = 0;
};

}  // namespace noria
