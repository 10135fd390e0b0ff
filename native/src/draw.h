// Numbers that look like any, always the same: what a level is proved with.
#pragma once

#include <cstdint>

namespace noria {

// splitmix64, of Steele, Lea and Flood (2014).
class Draw {
 public:
  uint64_t bits() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
  }
  // [-1, 1)
  float number() { return float(int32_t(bits() >> 32)) * 0x1p-31f; }

 private:
  uint64_t state_ = 0;
};

}  // namespace noria
