// What a step computes, as the caller laid it out; nothing is owned.
#pragma once

#include <cstdint>

namespace noria {

// See Batch in kernels/batch.py for what each array means.
struct Step {
  int num_tokens = 0;       // T
  int num_sequences = 0;    // S
  int num_logit_rows = 0;   // R
  int num_hidden_rows = 0;  // P
  int table_width = 0;      // B
  const int32_t* token_ids = nullptr;
  const int32_t* token_types = nullptr;
  const int32_t* positions = nullptr;
  const int32_t* slots = nullptr;
  const int32_t* query_starts = nullptr;
  const int32_t* context_lens = nullptr;
  const int32_t* block_tables = nullptr;
  const int32_t* logit_rows = nullptr;
  const int32_t* hidden_rows = nullptr;
};

// Where a step leaves what was asked of it.
struct StepOutputs {
  float* logits = nullptr;  // [R, V]
  float* hidden = nullptr;  // [P, H]
};

// Query head h reads key/value head h / group().
struct Heads {
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;

  int group() const { return num_heads / num_kv_heads; }
  int query_size() const { return num_heads * head_dim; }
  int kv_size() const { return num_kv_heads * head_dim; }
};

}  // namespace noria
