#include "step.h"

#include <stdexcept>
#include <string>

#include "plan.h"

namespace noria {
namespace {

[[noreturn]] void refuse(const std::string& what, int64_t found, const std::string& wanted) {
  throw std::invalid_argument(what + " is " + std::to_string(found) + "; " + wanted);
}

// Every one of `count` numbers must be in [0, limit).
void check_range(const char* name, const int32_t* numbers, int count, int64_t limit) {
  for (int index = 0; index < count; ++index) {
    if (numbers[index] >= 0 && numbers[index] < limit) continue;
    refuse(std::string(name) + "[" + std::to_string(index) + "]", numbers[index],
           "it must be at least 0 and below " + std::to_string(limit));
  }
}

// A model may not have what rows are asked of; width: of its rows, 0 where it has none.
void check_given(const std::string& what, int num_rows, int64_t width) {
  if (num_rows > 0 && width == 0) refuse("the number of rows of " + what, num_rows, "the model gives no " + what);
}

void check_sequence(const Step& step, int sequence, const Plan& plan) {
  const CacheShape& shape = plan.cache().shape();
  const std::string name = " of sequence " + std::to_string(sequence);
  const int64_t num_new = int64_t(step.query_starts[sequence + 1]) - step.query_starts[sequence];
  const int length = step.context_lens[sequence];
  if (num_new < 1) refuse("the number of tokens" + name, num_new, "at least 1");
  if (length < num_new) refuse("the context" + name, length, "it has " + std::to_string(num_new) + " new tokens");
  if (length > plan.limits().num_positions) {
    refuse("the context" + name, length, "the model was loaded for " + std::to_string(plan.limits().num_positions));
  }
  const int num_blocks = (length - 1) / shape.block_size + 1;
  if (num_blocks > step.table_width) {
    refuse("the width of block_tables", step.table_width,
           "the context" + name + " takes " + std::to_string(num_blocks));
  }
  check_range("block_tables", step.block_tables + int64_t(sequence) * step.table_width, num_blocks, shape.num_blocks);
}

}  // namespace

void check_step(const Step& step, const Plan& plan) {
  const CacheShape& shape = plan.cache().shape();
  check_range("token_ids", step.token_ids, step.num_tokens, plan.limits().num_tokens_known);
  check_range("token_types", step.token_types, step.num_tokens, plan.limits().num_token_types);
  check_range("positions", step.positions, step.num_tokens, plan.limits().num_positions);
  check_range("slots", step.slots, step.num_tokens, int64_t(shape.num_blocks) * shape.block_size);
  check_range("logit_rows", step.logit_rows, step.num_logit_rows, step.num_tokens);
  check_range("hidden_rows", step.hidden_rows, step.num_hidden_rows, step.num_tokens);
  check_given("logits", step.num_logit_rows, plan.limits().num_logits);
  check_given("hidden states", step.num_hidden_rows, plan.limits().hidden_width);
  const int start = step.query_starts[0], end = step.query_starts[step.num_sequences];
  if (start != 0) refuse("query_starts[0]", start, "it must be 0");
  if (end != step.num_tokens) {
    refuse("the end of query_starts", end, "there are " + std::to_string(step.num_tokens) + " tokens");
  }
  for (int sequence = 0; sequence < step.num_sequences; ++sequence) check_sequence(step, sequence, plan);
}

}  // namespace noria
