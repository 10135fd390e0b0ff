// The fewest likeliest tokens that together reach a weight.
#pragma once

#include <cstdint>

namespace noria {

// Keys (sample_math.h) of tokens, and room for the weight of each.
struct Keys {
  uint64_t* keys;
  int64_t* weights;
};

// keys [count], in any order, with their weights -> how many of them, now the first in any order, are the fewest that
// weigh at least the target; all where all together weigh less. count: at least 1.
int64_t nucleus(const Keys& keys, int64_t count, int64_t target);

}  // namespace noria
