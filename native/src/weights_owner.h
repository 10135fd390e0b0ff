// A packed weight together with its memory: what the extension hands to Python.
#pragma once

#include "arena.h"
#include "weights.h"

namespace noria {

class LinearWeight {
 public:
  // Everything is zero at first. Throws std::invalid_argument for a shape or format that cannot be packed and
  // std::bad_alloc when there is no memory.
  LinearWeight(WeightFormat format, int64_t n, int64_t k, ColumnOrder order, bool has_bias)
      : view_(checked({format, n, k, order, has_bias, nullptr})), arena_(view_.num_bytes(), nullptr) {
    view_.data = arena_.data();
  }

  const PackedLinear& view() const { return view_; }

 private:
  static PackedLinear checked(const PackedLinear& view) {
    view.check();
    return view;
  }

  PackedLinear view_;
  Arena arena_;
};

}  // namespace noria
