// What every op with a linear layer does: bring the rows into the weight's form, multiply panel by panel.
#pragma once

#include "plan.h"

namespace noria {

// The input rows of a linear layer and how they get ready.
class LinearInput {
 public:
  // norm: gamma is null where rows are taken as they are.
  LinearInput(Workspace& workspace, const PackedLinear& weight, const RmsNorm& norm)
      : workspace_(workspace), weight_(weight), norm_(norm) {}

  void prepare(int64_t num_rows);
  // By all threads: rows [num_rows, k] -> the activations, complete for the calling thread when it returns.
  Activations make(const Walker& walker, const float* rows, int64_t num_rows) const;

 private:
  void convert(const float* rows, int64_t begin, int64_t end, Activations& out) const;
  Activations at(uint8_t* data, const float* rows, int64_t num_rows) const;
  bool is_ready_as_is() const { return norm_.gamma == nullptr && !weight_.format.is_quantised(); }

  Workspace& workspace_;
  const PackedLinear weight_;
  const RmsNorm norm_;
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
