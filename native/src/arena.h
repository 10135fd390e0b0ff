// Memory for a model's large arrays: huge pages where the kernel has them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>

namespace noria {

// Under a sanitizer every array is an allocation of its own, so that a step beyond its end is seen.
#if defined(NORIA_SANITIZE)
constexpr bool kArraysApart = true;
#else
constexpr bool kArraysApart = false;
#endif

// A std::bad_alloc that says how much was asked for.
class OutOfMemory : public std::bad_alloc {
 public:
  explicit OutOfMemory(size_t num_bytes);
  const char* what() const noexcept override { return text_; }

 private:
  char text_[80];
};

// count * width * item_bytes; throws std::invalid_argument where no memory can hold so much.
size_t array_bytes(int64_t count, int64_t width, size_t item_bytes);

// One mapping, zeroed, freed with its owner; the system gives a page when it is first written. Not movable: others
// point into it.
class Arena {
 public:
  // Throws OutOfMemory when the system refuses.
  explicit Arena(size_t num_bytes);
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

  // At least num_bytes; throws OutOfMemory.
  void reserve(size_t num_bytes);
  uint8_t* data() const { return data_; }
  float* floats() const { return reinterpret_cast<float*>(data_); }

 private:
  uint8_t* data_ = nullptr;
  size_t num_bytes_ = 0;
};

}  // namespace noria
