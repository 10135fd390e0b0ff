#include "linear_op.h"

#include <algorithm>

namespace noria {
namespace {

// Up to so many rows, every thread makes all of them for itself: less work than waiting for the others' share.
constexpr int64_t kOwnRows = 4;

// rows [begin, end) become what their int8 codes lack.
void subtract_codes(const QuantRows& codes, int64_t begin, int64_t end, float* rows) {
  for (int64_t at = begin * codes.k; at < end * codes.k; ++at) rows[at] -= codes.scales[at / kScaleGroup] * codes.codes[at];
}

// Panels [begin, end): the rows, then what they lack added, panel by panel while the weights are near.
void multiply(const PackedLinear& weight, const LinearRows& x, int64_t begin, int64_t end, const Epilogue& epilogue) {
  if (x.rest.num_rows == 0) return gemm_panels(weight, x.rows, begin, end, epilogue);
  PackedLinear unbiased = weight;
  unbiased.has_bias = false;
  Epilogue add = epilogue;
  add.kind = Epilogue::Kind::kAdd;
  for (int64_t panel = begin; panel < end; ++panel) {
    gemm_panels(weight, x.rows, panel, panel + 1, epilogue);
    gemm_panels(unbiased, x.rest, panel, panel + 1, add);
  }
}

}  // namespace

size_t LinearInput::float_bytes(int64_t num_rows) const {
  const bool is_needed = has_rest() || !weight_.format.is_quantised();
  return is_needed ? (size_t(num_rows) * weight_.k * sizeof(float) + 63) / 64 * 64 : 0;
}

size_t LinearInput::num_bytes(int64_t num_rows) const {
  if (!weight_.format.is_quantised()) return float_bytes(num_rows);
  return float_bytes(num_rows) + (has_rest() ? 2 : 1) * ((quant_rows_bytes(num_rows, weight_.k) + 63) / 64 * 64);
}

void LinearInput::prepare(int64_t num_rows) {
  if (is_ready_as_is()) return;
  if (num_rows > kOwnRows) {
    workspace_.rows.reserve(num_bytes(num_rows));
  } else {
    for (Room& room : workspace_.own_rows) room.reserve(num_bytes(num_rows));
  }
}

LinearRows LinearInput::make(const Walker& walker, const float* rows, int64_t num_rows) const {
  LinearRows made;
  if (is_ready_as_is()) {
    made.rows.num_rows = num_rows;
    made.rows.floats = {rows, weight_.k, weight_.k};
    return made;
  }
  const bool is_own = num_rows <= kOwnRows;
  uint8_t* data = is_own ? workspace_.own_rows[walker.index].data() : workspace_.rows.data();
  made = at(data, num_rows);
  if (is_own) {
    convert(rows, 0, num_rows, data, made);
  } else {
    convert(rows, walker.begin_of(num_rows), walker.end_of(num_rows), data, made);
    walker.pool->barrier();
  }
  return made;
}

LinearRows LinearInput::at(uint8_t* data, int64_t num_rows) const {
  LinearRows made;
  made.rows.num_rows = num_rows;
  if (!weight_.format.is_quantised()) {
    made.rows.floats = {reinterpret_cast<float*>(data), weight_.k, weight_.k};
    return made;
  }
  uint8_t* quants = data + float_bytes(num_rows);
  made.rows.quants = quant_rows_at(quants, num_rows, weight_.k);
  if (has_rest()) {
    made.rest.num_rows = num_rows;
    quants += (quant_rows_bytes(num_rows, weight_.k) + 63) / 64 * 64;
    made.rest.quants = quant_rows_at(quants, num_rows, weight_.k);
  }
  return made;
}

void LinearInput::convert(const float* rows, int64_t begin, int64_t end, uint8_t* data, const LinearRows& out) const {
  const FloatRows in{rows, weight_.k, weight_.k};
  float* floats = reinterpret_cast<float*>(data);
  if (!weight_.format.is_quantised()) return rms_norm_rows(in, norm_, begin, end, floats);
  if (norm_.gamma == nullptr) return quantise_rows(in, begin, end, out.rows.quants);
  if (!has_rest()) return norm_quantise_rows(in, norm_, begin, end, out.rows.quants);
  const FloatRows normed{floats, weight_.k, weight_.k};
  rms_norm_rows(in, norm_, begin, end, floats);
  quantise_rows(normed, begin, end, out.rows.quants);
  subtract_codes(out.rows.quants, begin, end, floats);
  quantise_rows(normed, begin, end, out.rest.quants);
}

void PanelWork::run(const Walker& walker, const PackedLinear& weight, const LinearRows& x, const Epilogue& epilogue) {
  const int64_t num_panels = weight.num_panels();
  // Few takes for a large head, single panels where there are few.
  const int64_t step = std::max<int64_t>(1, num_panels / (walker.count * 16));
  for (int64_t begin = next_.take(step); begin < num_panels; begin = next_.take(step)) {
    multiply(weight, x, begin, std::min(begin + step, num_panels), epilogue);
  }
}

}  // namespace noria
