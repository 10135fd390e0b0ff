// The choice of tokens from rows of logits, without sorting a vocabulary. What is chosen is defined by
// noria/sampling/sampler.py, bit for bit.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "arena.h"
#include "pool.h"
#include "sample_request.h"

namespace noria {

// A token, or why there is none: so many logits are NaN, or else none is above -infinity.
struct Outcome {
  int32_t token_id = -1;
  int32_t num_nan = 0;
  int32_t first_nan = 0;
};

// A row to choose from. Its logits are changed while they are looked at and are then as they were.
// allowed: a bit a token, from the lowest of each word up: the only ones to choose from. nullptr: all, but for what the
// request withholds.
struct SampledRow {
  float* logits = nullptr;
  const SampledRequest* request = nullptr;
  const uint32_t* allowed = nullptr;
};

// Log-probabilities wanted of a row, and where they go. outcome: as of a choice, the token the one asked for.
struct LogprobsRow {
  const float* logits = nullptr;
  int64_t num_top = 0;  // at most the row's size
  Outcome outcome;
  double logprob = 0;
  int64_t rank = 0;
  int32_t* top_ids = nullptr;  // [num_top]
  double* top_logprobs = nullptr;
};

// Memory of one thread at work on a row.
struct SampleScratch {
  Room maxima, scaled, panels;  // a number a panel
  Room settled, masked;         // a row
  Room keys, weights;           // a number a token
  Room changes;

  // size_masked: of a row with tokens that are not allowed, 0 where there is none. Throws std::bad_alloc.
  void reserve(int64_t size, int64_t num_changes, int64_t size_masked);
};

class Sampler {
 public:
  explicit Sampler(Pool& pool) : pool_(pool), scratch_(pool.num_threads()) {}

  enum class Adjust { kAll, kWithholdOnly };  // what is done to the logits of a row before the choice

  // Rows of `size` logits; ids of requests are below. Calls come one after another: a second caller waits for the
  // first. Throws std::bad_alloc, and as Pool::need_own_process.
  void sample(const std::vector<SampledRow>& rows, int64_t size, Adjust adjust, Outcome* outcomes);
  void logprobs(std::vector<LogprobsRow>& rows, int64_t size);

 private:
  template <typename Work>
  void share(int64_t count, const Work& work);

  Pool& pool_;
  std::mutex one_call_;
  std::vector<SampleScratch> scratch_;
  Counter next_;
};

}  // namespace noria
