#include "arena.h"

#include <sys/mman.h>

#include <cstdlib>
#include <new>

namespace noria {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kHugePage = size_t{2} << 20;

struct Touch {
  volatile uint8_t* data;
  size_t num_bytes;
};

void touch_pages(void* context, int thread_index, int num_threads) {
  const Touch& touch = *static_cast<Touch*>(context);
  for (size_t start = thread_index * kHugePage; start < touch.num_bytes; start += num_threads * kHugePage) {
    const size_t end = start + kHugePage < touch.num_bytes ? start + kHugePage : touch.num_bytes;
    for (size_t at = start; at < end; at += kPage) touch.data[at] = 0;
  }
}

}  // namespace

Arena::Arena(size_t num_bytes, Pool* pool) : num_bytes_(num_bytes ? num_bytes : 1) {
  void* mapped = mmap(nullptr, num_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  data_ = static_cast<uint8_t*>(mapped);
  madvise(mapped, num_bytes_, MADV_HUGEPAGE);  // advice: without huge pages it is merely slower
  if (pool != nullptr) {
    Touch touch{data_, num_bytes_};
    pool->run(touch_pages, &touch);
  }
}

Arena::~Arena() { munmap(data_, num_bytes_); }

Room::~Room() { std::free(data_); }

void Room::reserve(size_t num_bytes) {
  if (num_bytes <= num_bytes_) return;
  const size_t rounded = (num_bytes + 63) / 64 * 64;
  void* made = std::aligned_alloc(64, rounded);
  if (made == nullptr) throw std::bad_alloc();
  std::free(data_);
  data_ = static_cast<uint8_t*>(made);
  num_bytes_ = rounded;
}

}  // namespace noria
