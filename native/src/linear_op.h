// What every op with a linear layer does: bring the rows into the weight's form, multiply panel by panel.
#pragma once

#include "plan.h"

namespace noria {

// How exactly rows meet quantised weights. int8 alone moves a model's answers; the projections to queries, keys and
// logits are the most sensitive for their size, and take what int8 has left over in a second int8.
enum class Precision { kInt8, kTwoInt8 };

// The input rows of a product. rest: what `rows` lack of them, or no rows.
struct LinearRows {
  Activations rows;
  Activations rest;
};

// The input of a linear layer and how it gets ready.
class LinearInput {
 public:
  // norm: gamma is null where rows are taken as they are.
  LinearInput(Workspace& workspace, const PackedLinear& weight, const RmsNorm& norm, Precision precision)
      : workspace_(workspace), weight_(weight), norm_(norm), precision_(precision) {}

  void prepare(int64_t num_rows);
  // By all threads: rows [num_rows, k] -> complete for the calling thread when it returns.
  LinearRows make(const Walker& walker, const float* rows, int64_t num_rows) const;

 private:
  bool is_ready_as_is() const { return norm_.gamma == nullptr && !weight_.format.is_quantised(); }
  bool has_rest() const { return weight_.format.is_quantised() && precision_ == Precision::kTwoInt8; }
  size_t float_bytes(int64_t num_rows) const;
  size_t num_bytes(int64_t num_rows) const;
  LinearRows at(uint8_t* data, int64_t num_rows) const;
  void convert(const float* rows, int64_t begin, int64_t end, uint8_t* data, const LinearRows& out) const;

  Workspace& workspace_;
  const PackedLinear weight_;
  const RmsNorm norm_;
  const Precision precision_;
};

// Panels of a product, shared out among the threads. The caller waits for the others.
class PanelWork {
 public:
  void prepare() { next_.reset(); }
  void run(const Walker& walker, const PackedLinear& weight, const LinearRows& x, const Epilogue& epilogue);

 private:
  Counter next_;
};

}  // namespace noria
