// Activations as the kernels read them: float32 rows, or integers with a scale for each group of 32.
#pragma once

#include <cstddef>
#include <cstdint>

namespace noria {

constexpr int kScaleGroup = 32;  // activations that share a scale
constexpr int kSumGroup = 16;    // the smallest weight group, hence the finer of the two sums
constexpr int kUsualZero = 8;    // of weight codes: that of 4 bits with a zero in their middle

// The integers of quantised rows, and what kernels multiply.
enum class RowForm {
  kBytes,   // -127..127 in 8 bits
  kShorts,  // -32767..32767 in 16 bits
};

// Quantised rows: x = scale * code. A view of memory that somebody else owns.
//
// A group with a number that is not finite has NaN for its scale, so that what it touches is NaN too. A group of
// numbers below 1e-30 is zero.
struct QuantRows {
  RowForm form = RowForm::kBytes;
  int64_t k = 0;              // a multiple of 32
  int8_t* bytes = nullptr;    // kBytes: [rows][k] codes
  int16_t* shorts = nullptr;  // kShorts: [rows][k] codes; of every four, numbers 0, 2, 1, 3
  float* scales = nullptr;    // [rows][k / 32]
  float* sums32 = nullptr;    // [rows][k / 32] scale * the codes' sum
  float* offsets32 = nullptr;  // [rows][k / 32] -kUsualZero times that
  float* sums16 = nullptr;    // [rows][k / 16]

  explicit operator bool() const { return scales != nullptr; }
};

// Bytes that num_rows rows take, and the view of so many bytes, 64-byte aligned. Throws std::invalid_argument
// where k is not a multiple of 32.
size_t quant_rows_bytes(int64_t num_rows, int64_t k, RowForm form);
QuantRows quant_rows_at(uint8_t* data, int64_t num_rows, int64_t k, RowForm form);

// Float32 rows somewhere in memory; a row begins `stride` floats after the one before.
struct FloatRows {
  const float* data = nullptr;
  int64_t stride = 0;
  int64_t k = 0;
};

// x / sqrt(mean(x^2) + eps) * gamma; with a beta the layer norm, (x - mean) / sqrt(variance + eps) * gamma + beta.
struct RowNorm {
  const float* gamma = nullptr;  // [k]
  float eps = 0;
  const float* beta = nullptr;  // [k]
};

// All take rows [begin, end) of x to the same rows of `out`. What a row becomes depends on that row alone.
// out of norm_rows: [rows][k] at stride x.k; it may be x itself.
void norm_rows(const FloatRows& x, const RowNorm& norm, int64_t begin, int64_t end, float* out);
void quantise_rows(const FloatRows& x, int64_t begin, int64_t end, const QuantRows& out);
void norm_quantise_rows(const FloatRows& x, const RowNorm& norm, int64_t begin, int64_t end, const QuantRows& out);

// The numbers that rows stand for, to out [num_rows][k]. For looking at them: no kernel needs it.
void dequantise_rows(const QuantRows& rows, int64_t num_rows, float* out);

}  // namespace noria
