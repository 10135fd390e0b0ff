#include "quantise.h"

#include <stdexcept>
#include <string>

#include "gemm_table.h"

namespace noria {
namespace {

constexpr size_t kAlignment = 64;

size_t aligned(size_t num_bytes) { return (num_bytes + kAlignment - 1) / kAlignment * kAlignment; }

size_t code_bytes(RowForm form) { return form == RowForm::kBytes ? 1 : 2; }

}  // namespace

size_t quant_rows_bytes(int64_t num_rows, int64_t k, RowForm form) {
  if (k < kScaleGroup || k % kScaleGroup != 0) {
    throw std::invalid_argument("rows of " + std::to_string(k) + " numbers cannot be quantised: " +
                                "their length must be a multiple of " + std::to_string(kScaleGroup));
  }
  const size_t size = num_rows * k;
  return aligned(size * code_bytes(form)) + 3 * aligned(size / kScaleGroup * 4) + aligned(size / kSumGroup * 4);
}

QuantRows quant_rows_at(uint8_t* data, int64_t num_rows, int64_t k, RowForm form) {
  const size_t size = num_rows * k;
  QuantRows rows;
  rows.form = form;
  rows.k = k;
  if (form == RowForm::kBytes) rows.bytes = reinterpret_cast<int8_t*>(data);
  if (form == RowForm::kShorts) rows.shorts = reinterpret_cast<int16_t*>(data);
  data += aligned(size * code_bytes(form));
  rows.scales = reinterpret_cast<float*>(data);
  data += aligned(size / kScaleGroup * 4);
  rows.sums32 = reinterpret_cast<float*>(data);
  data += aligned(size / kScaleGroup * 4);
  rows.offsets32 = reinterpret_cast<float*>(data);
  data += aligned(size / kScaleGroup * 4);
  rows.sums16 = reinterpret_cast<float*>(data);
  return rows;
}

void norm_rows(const FloatRows& x, const RowNorm& norm, int64_t begin, int64_t end, float* out) {
  gemm_table().norm_rows(x, norm, begin, end, out);
}

void quantise_rows(const FloatRows& x, int64_t begin, int64_t end, const QuantRows& out) {
  gemm_table().quantise_rows(x, begin, end, out);
}

void norm_quantise_rows(const FloatRows& x, const RowNorm& norm, int64_t begin, int64_t end, const QuantRows& out) {
  gemm_table().norm_quantise_rows(x, norm, begin, end, out);
}

void dequantise_rows(const QuantRows& rows, int64_t num_rows, float* out) {
  // Of every four shorts, the middle two have changed places.
  static constexpr int kPlaces[4] = {0, 2, 1, 3};
  for (int64_t index = 0; index < num_rows * rows.k; ++index) {
    const bool is_bytes = rows.form == RowForm::kBytes;
    const int code = is_bytes ? rows.bytes[index] : rows.shorts[index / 4 * 4 + kPlaces[index % 4]];
    out[index] = rows.scales[index / kScaleGroup] * static_cast<float>(code);
  }
}

}  // namespace noria
