// A packed weight together with its memory: what the extension hands to Python.
#pragma once

#include <memory>

#include "weights.h"
#include "weights_memory.h"

namespace noria {

class LinearWeight {
 public:
  // Everything is zero at first. Throws std::invalid_argument for a shape or format that cannot be packed and
  // std::bad_alloc when there is no memory.
  LinearWeight(WeightFormat format, int64_t n, int64_t k, ColumnOrder order, bool has_bias)
      : view_(checked({format, n, k, order, has_bias, nullptr})), memory_(take_weight_memory(view_.num_bytes())) {
    view_.data = memory_.get();
  }

  const PackedLinear& view() const { return view_; }

 private:
  static PackedLinear checked(const PackedLinear& view) {
    view.check();
    return view;
  }

  PackedLinear view_;
  std::shared_ptr<uint8_t> memory_;
};

}  // namespace noria
