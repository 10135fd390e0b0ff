// The Gumbel-max choice among tokens that are offered one by one, in any order. For x86-64-v3 units only.
#pragma once

#include <cmath>
#include <cstdint>

#include "sample_math.h"
#include "vec8.h"

namespace noria {

// Of 1 - uniform: below its smallest value nothing is within reach.
constexpr double kLeastReach = 0x1p-53;

// Keeps the token with the highest value and noise, the lowest id among equals. A token can reach the score kept only
// if -ln(u) <= e^(value - score), and 1 - u <= -ln(u): most are set aside by their bits alone.
class Draw {
 public:
  Draw(uint64_t key, uint32_t id, float scaled) : key_(key), id_(id) {
    keep(id, score_of(random_bits(key, id), scaled));
  }

  uint32_t id() const { return id_; }

  // How far 1 - uniform may be from 0. mass: e^value, which may be off by a little.
  double reach(float mass) const { return mass * scale_; }

  void offer(uint32_t id, float scaled) {
    const uint64_t bits = random_bits(key_, id);
    const double distance = 1.0 - uniform(bits);
    if (distance > reach(1) || distance > reach(exp_of(scaled))) return;
    const double score = score_of(bits, scaled);
    if (score > score_ || (score == score_ && id < id_)) keep(id, score);
  }

 private:
  static double score_of(uint64_t bits, float scaled) { return static_cast<double>(scaled) + gumbel(bits); }

  void keep(uint32_t id, double score) {
    id_ = id;
    score_ = score;
    scale_ = kSlack * std::exp(-score);
  }

  static constexpr double kSlack = 1.001;  // more than the bounds may have lost to rounding

  uint64_t key_;
  uint32_t id_;
  double score_ = 0;
  double scale_ = 0;
};

}  // namespace noria
