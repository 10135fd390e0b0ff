#include "arena.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

namespace noria {
namespace {

constexpr size_t kMostBytes = size_t{1} << 62;  // more than any machine maps, and far from where sizes overflow

void* aligned_memory(size_t num_bytes) {
  void* made = nullptr;
  if (num_bytes > kMostBytes || posix_memalign(&made, 64, num_bytes) != 0) throw OutOfMemory(num_bytes);
  return made;
}

void* map_memory(size_t num_bytes) {
  if (kArraysApart) return std::memset(aligned_memory(num_bytes), 0, num_bytes);
  void* mapped = mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) throw OutOfMemory(num_bytes);
  madvise(mapped, num_bytes, MADV_HUGEPAGE);  // advice: without huge pages it is merely slower
  return mapped;
}

}  // namespace

OutOfMemory::OutOfMemory(size_t num_bytes) {
  std::snprintf(text_, sizeof text_, "%zu bytes of memory cannot be had", num_bytes);
}

size_t array_bytes(int64_t count, int64_t width, size_t item_bytes) {
  size_t bytes = 0;
  const bool overflows = __builtin_mul_overflow(size_t(count), size_t(width), &bytes) ||
                         __builtin_mul_overflow(bytes, item_bytes, &bytes);
  if (count < 0 || width < 0 || overflows || bytes > kMostBytes) {
    throw std::invalid_argument("an array of " + std::to_string(count) + " times " + std::to_string(width) +
                                " numbers is beyond any memory");
  }
  return bytes;
}

Arena::Arena(size_t num_bytes) : num_bytes_(num_bytes ? num_bytes : 1) {
  data_ = static_cast<uint8_t*>(map_memory(num_bytes_));
}

Arena::~Arena() {
  if (kArraysApart) {
    std::free(data_);
  } else {
    munmap(data_, num_bytes_);
  }
}

Room::~Room() { std::free(data_); }

void Room::reserve(size_t num_bytes) {
  if (num_bytes <= num_bytes_) return;
  void* made = aligned_memory(num_bytes);
  std::free(data_);
  data_ = static_cast<uint8_t*>(made);
  num_bytes_ = num_bytes;
}

}  // namespace noria
