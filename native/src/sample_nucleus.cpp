#include "sample_nucleus.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "sample_kernels.h"
#include "sample_math.h"

namespace noria {
namespace {

constexpr int64_t kFewKeys = 128;  // as quick to part in halves as to count into bins
constexpr int kBins = 512;

// Keys [begin, end) hold the last one that is needed; those before weigh `reached`.
struct Boundary {
  int64_t begin;
  int64_t end;
  int64_t reached;
};

// Bins of equal width from the highest value to the lowest: an order of bins is an order of values.
struct Bins {
  float per_value;

  int of(uint64_t key) const { return std::min(kBins - 1, static_cast<int>(-value_of(key) * per_value)); }
};

// Puts the keys of the bins before the boundary's first, those of its own next, and forgets the others.
Boundary part_by_bins(const Keys& keys, int64_t count, int64_t target, const Bins& bins) {
  std::array<int64_t, kBins> weights{};
  for (int64_t i = 0; i < count; ++i) weights[bins.of(keys.keys[i])] += keys.weights[i];
  int last = 0;
  Boundary boundary{0, 0, 0};
  while (last < kBins - 1 && boundary.reached + weights[last] < target) boundary.reached += weights[last++];
  uint64_t* const all = keys.keys;
  uint64_t* const own = std::partition(all, all + count, [&](uint64_t key) { return bins.of(key) < last; });
  uint64_t* const rest = std::partition(own, all + count, [&](uint64_t key) { return bins.of(key) == last; });
  boundary.begin = own - all;
  boundary.end = rest - all;
  return boundary;
}

}  // namespace

int64_t nucleus(const Keys& keys, int64_t count, int64_t target) {
  Boundary boundary{0, count, 0};
  if (count > kFewKeys) {
    const float per_value = kBins / -value_of(*std::max_element(keys.keys, keys.keys + count));
    if (std::isfinite(per_value)) boundary = part_by_bins(keys, count, target, Bins{per_value});
  }
  while (boundary.end - boundary.begin > 1) {
    uint64_t* const begin = keys.keys + boundary.begin;
    const int64_t half = (boundary.end - boundary.begin) / 2;
    std::nth_element(begin, begin + half, keys.keys + boundary.end);
    const int64_t weight = key_weights_avx2(begin, half, keys.weights);
    if (boundary.reached + weight >= target) {
      boundary.end = boundary.begin + half;
    } else {
      boundary.reached += weight;
      boundary.begin += half;
    }
  }
  return std::max<int64_t>(1, boundary.end);
}

}  // namespace noria
