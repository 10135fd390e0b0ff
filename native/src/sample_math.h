// The arithmetic of noria.sampling on single numbers: the same operations in the same order, so the same bits.
// Nothing here may be contracted into fused operations.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace noria {

// noria/sampling/arithmetic.py: a weight of 1 is 2^42 units.
constexpr int kWeightBits = 42;

// Natural logarithm of a positive number.
inline double ln(double x) {
  int exponent = 0;
  double fraction = std::frexp(x, &exponent);
  if (fraction < 0.7071067811865476) {
    fraction = 2 * fraction;
    exponent -= 1;
  }
  const double above = fraction - 1.0;
  const double s = above / (2.0 + above);
  const double z = s * s;
  double series = 1.0 / 21;
  for (const double divisor : {19.0, 17.0, 15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0}) series = series * z + 1.0 / divisor;
  const double twice = s + s;
  return exponent * 6.93147180369123816490e-01 + (twice + (twice * z * series + exponent * 1.90821492927058770002e-10));
}

// ln of a sum of weights, in units of 1.
inline double log_of_weights(int64_t total) { return ln(static_cast<double>(total) * 0x1p-42); }

// The smallest whole number that is no less than share * total.
inline int64_t share_of(int64_t total, double share) {
  return static_cast<int64_t>(std::ceil(share * static_cast<double>(total)));
}

// noria/sampling/random_numbers.py.
constexpr uint64_t kGolden = 0x9E3779B97F4A7C15;
constexpr uint64_t kFirstMix = 0xBF58476D1CE4E5B9;
constexpr uint64_t kSecondMix = 0x94D049BB133111EB;

inline uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * kFirstMix;
  z = (z ^ (z >> 27)) * kSecondMix;
  return z ^ (z >> 31);
}

inline uint64_t position_key(uint64_t seed, uint64_t position) {
  return mix(mix(seed + kGolden) + (position + 1) * kGolden);
}

inline uint64_t random_bits(uint64_t key, uint64_t token_id) { return mix(key + (token_id + 1) * kGolden); }

inline double uniform(uint64_t bits) { return (static_cast<double>(bits >> 12) + 0.5) * 0x1p-52; }

inline double gumbel(uint64_t bits) { return -ln(-ln(uniform(bits))); }

// Bits below cannot have 1 - uniform(bits) <= reach. reach: above 0.
inline uint64_t bits_bound(double reach) {
  if (reach >= 1.0) return 0;
  const auto within = static_cast<uint64_t>(reach * 0x1p64);
  const uint64_t highest = ~uint64_t{0} - 4095;  // 4096 bits make the same number
  return within >= highest ? 0 : highest - within;
}

// A token's key is its place among others as one whole number: ascending keys are values from the highest, equal ones
// by id. Its upper half is what value_of takes the value from, its lower half the id; -0 has the key of 0.
inline uint32_t id_of(uint64_t key) { return static_cast<uint32_t>(key); }

inline float value_of(uint64_t key) {
  const auto descending = static_cast<uint32_t>(key >> 32);
  const uint32_t bits = (descending & 0x80000000u) != 0 ? descending : ~descending & 0x7fffffffu;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

}  // namespace noria
