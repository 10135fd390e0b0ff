// What every op with a linear layer does: bring the rows into the weight's form, multiply panel by panel.
#pragma once

#include "plan.h"

namespace noria {

// The input of a linear layer and how it gets ready.
class LinearInput {
 public:
  // norm: gamma is null where rows are taken as they are.
  LinearInput(Workspace& workspace, const PackedLinear& weight, const RowNorm& norm, Precision precision)
      : workspace_(workspace), weight_(weight), norm_(norm), form_(row_form(weight.format, precision)) {}

  void prepare(int64_t num_rows);
  // By all threads: rows [num_rows, k] -> complete for the calling thread when it returns.
  Activations make(const Walker& walker, const float* rows, int64_t num_rows) const;

 private:
  bool is_ready_as_is() const { return norm_.gamma == nullptr && !weight_.format.is_quantised(); }
  size_t num_bytes(int64_t num_rows) const;
  Activations at(uint8_t* data, int64_t num_rows) const;
  void convert(const float* rows, int64_t begin, int64_t end, const Activations& out) const;

  Workspace& workspace_;
  const PackedLinear weight_;
  const RowNorm norm_;
  const RowForm form_;
};

// Panels of a product, shared out among the threads. The caller waits for the others.
class PanelWork {
 public:
  void prepare() { next_.reset(); }
  void run(const Walker& walker, const PackedLinear& weight, const Activations& x, const Epilogue& epilogue);

 private:
  Counter next_;
};

}  // namespace noria
