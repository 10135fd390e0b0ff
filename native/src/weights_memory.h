// Where packed weights live.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace noria {

// num_bytes, zero at first and 64-byte aligned. A model has hundreds of weights, many smaller than a huge page, so
// they are laid one after another into large mappings; a mapping goes when the last weight in it does.
// Throws OutOfMemory.
std::shared_ptr<uint8_t> take_weight_memory(size_t num_bytes);

}  // namespace noria
