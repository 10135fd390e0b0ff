// What the quantised kernels of all levels share: how codes are unpacked, and how steps of shorts and, where a level
// multiplies bytes exactly, steps of bytes are summed.
#pragma once

#include "gemm_ints.h"

namespace noria {

// Steps of shorts: both are widened to 16 bits and summed in 32.
template <class Isa>
struct ShortSteps {
  using Ints = typename Isa::Ints;
  static constexpr Lack kLack = Lack::kNothing;
  static constexpr int kCodesAStep = 2;
  static const int16_t* items(const QuantRows& x) { return x.shorts; }

  // A function of its own, with sums of its own: beside all else that a tile of rows keeps in wide registers, gcc 12
  // puts them in memory.
  template <int kSteps, class Group, int kRows, int kVectors>
  [[gnu::noinline]] static void sum(const Group& group, const int16_t* x, int64_t stride,
                                    Ints (&sums)[kRows][kVectors]) {
    Ints own[kRows][kVectors];
#pragma GCC unroll 16
    for (int step = 0; step < kSteps; ++step) {
      Ints weights[kVectors];
      for (int c = 0; c < kVectors; ++c) weights[c] = group.at(step, c);
      for (int r = 0; r < kRows; ++r) {
        const Ints both = Ints::all_at(x + r * stride + step * 2);
        for (int c = 0; c < kVectors; ++c) {
          Ints product = step == 0 ? multiply_pairs(weights[c], both) : Isa::dot_shorts(own[r][c], weights[c], both);
          product.pin();
          own[r][c] = product;
        }
      }
    }
    for (int r = 0; r < kRows; ++r) {
      for (int c = 0; c < kVectors; ++c) sums[r][c] = own[r][c];
    }
  }
};

// Steps of bytes for a level with dot_bytes: unsigned times signed, four products summed in 32 bits.
template <class Isa>
struct DotByteSteps {
  using Ints = typename Isa::Ints;
  static constexpr Lack kLack = Lack::kZero;
  static constexpr int kCodesAStep = 4;
  static const int8_t* items(const QuantRows& x) { return x.bytes; }

  template <int kSteps, class Group, int kRows, int kVectors>
  static void sum(const Group& group, const int8_t* x, int64_t stride, Ints (&sums)[kRows][kVectors]) {
#pragma GCC unroll 16
    for (int step = 0; step < kSteps; ++step) {
      Ints weights[kVectors];
      for (int c = 0; c < kVectors; ++c) weights[c] = group.at(step, c);
      for (int r = 0; r < kRows; ++r) {
        const Ints four = Ints::all_at(x + r * stride + step * 4);
        for (int c = 0; c < kVectors; ++c) {
          sums[r][c] = Isa::dot_bytes(step == 0 ? Ints::zero() : sums[r][c], weights[c], four);
        }
      }
    }
  }
};

template <class Isa>
typename Isa::Ints load_line(const uint8_t* codes, int line, int part) {
  return Isa::Ints::load(codes + line * kLineBytes + part * Isa::kLanes * 4);
}

// A line has two steps of bytes, in its low nibbles and in its high ones.
template <class Isa>
typename Isa::Ints nibble_bytes(const uint8_t* codes, int step, int part) {
  const auto line = load_line<Isa>(codes, step / 2, part);
  return (step % 2 == 0 ? line : line.template shift_shorts<4>()) & Isa::Ints::all(0x0f0f0f0f);
}

template <class Isa>
struct W4Shorts : ShortSteps<Isa> {
  using Ints = typename Isa::Ints;

  explicit W4Shorts(const WeightFormat& format) : zero(Ints::all_shorts(int16_t(format.zero))) {}

  // A line has four steps: k 0 and 2, 1 and 3 in the low nibbles, then the same in the high ones.
  Ints unpack(const uint8_t* codes, int step, int part) const {
    return subtract_shorts(nibbles(load_line<Isa>(codes, step / 4, part), step % 4) & Ints::all_shorts(15), zero);
  }

  static Ints nibbles(Ints line, int which) {
    switch (which) {
      case 0: return line;
      case 1: return line.template shift_shorts<8>();
      case 2: return line.template shift_shorts<4>();
      default: return line.template shift_shorts<12>();
    }
  }

  const Ints zero;
};

template <class Isa>
struct W8Shorts : ShortSteps<Isa> {
  using Ints = typename Isa::Ints;

  explicit W8Shorts(const WeightFormat& format) : zero(Ints::all_shorts(int16_t(format.zero))) {}

  // A line has two steps: k 0 and 2 in its even bytes, 1 and 3 in its odd ones.
  Ints unpack(const uint8_t* codes, int step, int part) const {
    const Ints line = load_line<Isa>(codes, step / 2, part);
    return subtract_shorts(step % 2 == 0 ? line & Ints::all_shorts(0xff) : line.template shift_shorts<8>(), zero);
  }

  const Ints zero;
};

template <class Isa>
struct W4DotBytes : DotByteSteps<Isa> {
  explicit W4DotBytes(const WeightFormat&) {}
  static auto unpack(const uint8_t* codes, int step, int part) { return nibble_bytes<Isa>(codes, step, part); }
};

template <class Isa>
struct W8DotBytes : DotByteSteps<Isa> {
  explicit W8DotBytes(const WeightFormat&) {}
  static auto unpack(const uint8_t* codes, int step, int part) { return load_line<Isa>(codes, step, part); }
};

}  // namespace noria
