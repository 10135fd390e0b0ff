#include "linear_op.h"

#include <algorithm>

namespace noria {
namespace {

// Up to so many rows, every thread makes all of them for itself: less work than waiting for the others' share.
constexpr int64_t kOwnRows = 4;

}  // namespace

size_t LinearInput::num_bytes(int64_t num_rows) const {
  if (weight_.format.is_quantised()) return quant_rows_bytes(num_rows, weight_.k, form_);
  return size_t(num_rows) * weight_.k * sizeof(float);
}

void LinearInput::prepare(int64_t num_rows) {
  if (is_ready_as_is()) return;
  if (num_rows > kOwnRows) {
    workspace_.rows.reserve(num_bytes(num_rows));
  } else {
    for (Room& room : workspace_.own_rows) room.reserve(num_bytes(num_rows));
  }
}

Activations LinearInput::make(const Walker& walker, const float* rows, int64_t num_rows) const {
  if (is_ready_as_is()) {
    Activations made;
    made.num_rows = num_rows;
    made.floats = {rows, weight_.k, weight_.k};
    return made;
  }
  if (num_rows <= kOwnRows) {
    const Activations own = at(workspace_.own_rows[walker.index].data(), num_rows);
    convert(rows, 0, num_rows, own);
    return own;
  }
  const Activations shared = at(workspace_.rows.data(), num_rows);
  convert(rows, walker.begin_of(num_rows), walker.end_of(num_rows), shared);
  walker.pool->barrier();
  return shared;
}

Activations LinearInput::at(uint8_t* data, int64_t num_rows) const {
  Activations made;
  made.num_rows = num_rows;
  if (weight_.format.is_quantised()) {
    made.quants = quant_rows_at(data, num_rows, weight_.k, form_);
  } else {
    made.floats = {reinterpret_cast<float*>(data), weight_.k, weight_.k};
  }
  return made;
}

void LinearInput::convert(const float* rows, int64_t begin, int64_t end, const Activations& out) const {
  const FloatRows in{rows, weight_.k, weight_.k};
  if (!weight_.format.is_quantised()) {
    return rms_norm_rows(in, norm_, begin, end, const_cast<float*>(out.floats.data));
  }
  if (norm_.gamma == nullptr) return quantise_rows(in, begin, end, out.quants);
  norm_quantise_rows(in, norm_, begin, end, out.quants);
}

void PanelWork::run(const Walker& walker, const PackedLinear& weight, const Activations& x, const Epilogue& epilogue) {
  const int64_t num_panels = weight.num_panels();
  // Few takes for a large head, single panels where there are few.
  const int64_t step = std::max<int64_t>(1, num_panels / (walker.count * 16));
  for (int64_t begin = next_.take(step); begin < num_panels; begin = next_.take(step)) {
    gemm_panels(weight, x, begin, std::min(begin + step, num_panels), epilogue);
  }
}

}  // namespace noria
