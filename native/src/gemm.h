// Products of activations with packed weights, panel by panel.
#pragma once

#include <cstdint>
#include <string>

#include "quantise.h"
#include "weights.h"

namespace noria {

// The rows of a product. F32, BF16 and F16 weights take `floats`, W8 and W4 take `quants`.
struct Activations {
  int64_t num_rows = 0;
  FloatRows floats;
  QuantRows quants;
};

// How exactly rows meet quantised weights. 16 bits everywhere would cost nearly twice as much; the logits, whose errors
// nothing evens out afterwards, take them.
enum class Precision { kInt8, kInt16 };

// The form of the rows that a quantised weight is multiplied by: at least as precise as asked.
RowForm row_form(const WeightFormat& format, Precision precision);

// kGelu is the exact one, by the error function.
enum class Activation { kSilu, kGeluTanh, kGelu, kRelu };

// By the name that checkpoints have for it. Throws std::invalid_argument.
Activation activation_of(const std::string& name);

// What becomes of a panel's numbers, the bias added. Plain column orders store, add or activate, kGlu ones gate.
struct Epilogue {
  enum class Kind {
    kStore,     // out[row][column] = y
    kAdd,       // out[row][column] += y
    kActivate,  // activation(y): to out where it is given, to quants where they are
    kGate,      // activation(y of gate) * y of up, likewise
  };
  Kind kind = Kind::kStore;
  float* out = nullptr;  // [num_rows], a row `stride` floats after the one before
  int64_t stride = 0;
  Activation activation = Activation::kSilu;
  QuantRows quants;  // k of the outputs, a multiple of 32: every 32 of a panel's are a group
};

// Throws std::invalid_argument with the numbers where the three do not fit together: once, when recorded.
void check_gemm(const PackedLinear& weight, const Activations& x, const Epilogue& epilogue);

// Rows that go through a panel together, at most: their sums, and a tile beside them, stay in the first cache.
constexpr int64_t kBlockRows = 48;

// Rows [begin, end) of x, at most kBlockRows of them, times one panel. What a (row, column) becomes depends on neither
// the other rows nor their number: k is summed in one order with the same operations.
void gemm_block(const PackedLinear& weight, const Activations& x, int64_t panel, int64_t begin, int64_t end,
                const Epilogue& epilogue);

// Panels [begin, end) for all rows of x.
void gemm_panels(const PackedLinear& weight, const Activations& x, int64_t begin, int64_t end,
                 const Epilogue& epilogue);

}  // namespace noria
