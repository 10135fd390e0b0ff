#include "weights_memory.h"

#include <mutex>

#include "arena.h"

namespace noria {
namespace {

constexpr size_t kMappingBytes = size_t{64} << 20;  // untouched pages of it cost nothing
constexpr size_t kAlignment = 64;

struct Mapping {
  Mapping() : arena(kMappingBytes) {}

  Arena arena;
  size_t num_used = 0;
};

}  // namespace

std::shared_ptr<uint8_t> take_weight_memory(size_t num_bytes) {
  static std::mutex one_at_a_time;
  static std::weak_ptr<Mapping> last;
  if (kArraysApart || num_bytes > kMappingBytes / 2) {
    auto arena = std::make_shared<Arena>(num_bytes);
    return {arena, arena->data()};
  }
  const std::lock_guard<std::mutex> lock(one_at_a_time);
  std::shared_ptr<Mapping> mapping = last.lock();
  if (mapping == nullptr || mapping->num_used + num_bytes > kMappingBytes) {
    mapping = std::make_shared<Mapping>();
    last = mapping;
  }
  uint8_t* at = mapping->arena.data() + mapping->num_used;
  mapping->num_used += (num_bytes + kAlignment - 1) / kAlignment * kAlignment;
  return {mapping, at};
}

}  // namespace noria
