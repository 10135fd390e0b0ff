// A model's forward as a record of ops, walked by the pool once a step.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "arena.h"
#include "attention.h"
#include "cache.h"
#include "gemm.h"
#include "pool.h"
#include "rope.h"
#include "step.h"

namespace noria {

// One thread on its way through a step.
struct Walker {
  Pool* pool;
  const Step* step;
  int index;
  int count;

  int64_t begin_of(int64_t size) const { return size * index / count; }
  int64_t end_of(int64_t size) const { return size * (index + 1) / count; }
};

// Memory that buffers take in turns.
struct Slot {
  Room floats;
  Room quants;
  size_t last_op = 0;  // the last op that reads what the buffer placed last holds
};

// Rows [T, width] between two ops, in the forms that its readers want.
struct Buffer {
  Buffer(int64_t width, size_t op) : width(width), first_op(op), last_op(op) {}

  const int64_t width;
  const size_t first_op;
  size_t last_op;
  bool as_floats = false;
  bool as_quants = false;
  RowForm quants_form = RowForm::kBytes;
  Slot* slot = nullptr;

  void reserve(int64_t num_rows);
  float* floats() const { return slot->floats.floats(); }
  QuantRows quants(int64_t num_rows) const { return quant_rows_at(slot->quants.data(), num_rows, width, quants_form); }
};

// float32, one row after another.
struct FloatTable {
  const float* data = nullptr;
  int64_t num_rows = 0;
  int64_t width = 0;

  const float* row(int64_t index) const { return data + index * width; }
};

// What is added to a token's own row, and the norm over the sum.
struct EmbeddingSum {
  FloatTable positions;
  FloatTable token_types;
  RowNorm norm;
};

// Memory that ops use one after another within a step.
struct Workspace {
  explicit Workspace(int num_threads) : own_rows(num_threads), own_scratch(num_threads) {}

  Room rows;                      // a linear's input, normalised and in the form that its weight takes
  std::vector<Room> own_rows;     // the same, by thread, where each makes its own
  Room gathered;                  // the rows whose logits are wanted
  Room shares;                    // of attention
  std::vector<Room> own_scratch;  // of attention, by thread
};

class Op {
 public:
  virtual ~Op() = default;
  // Before a step, by one thread: takes memory. Throws std::bad_alloc.
  virtual void prepare(const Step& step) = 0;
  // By all threads. Ends in a barrier, so that the next op finds everything written.
  virtual void run(const Walker& walker) = 0;
  virtual const char* name() const = 0;
};

// Buffers are numbers in the order they were made. Weights, tables and norms are views: their owners must live as
// long as the plan. Recording throws std::invalid_argument with the numbers where shapes do not fit.
class Plan {
 public:
  Plan(Pool& pool, KvCache& cache) : pool_(pool), cache_(cache), workspace_(pool.num_threads()) {}

  // sum: of the table's width; nothing is added where its tables are null.
  int embed(const PackedLinear& table, const EmbeddingSum& sum);
  // weights: one below the other they are the rows q | k | v.
  int norm_qkv(int x, const RowNorm& norm, const std::vector<PackedLinear>& weights, const QkvFinish& finish);
  int attend(int q, const Heads& heads, float scale, const Reach& reach, int layer);
  void linear_add(int inputs, const PackedLinear& weight, int x);
  // norm: of this and those below, gamma is null where rows are taken, or given, as they are.
  int norm_glu(int x, const RowNorm& norm, const PackedLinear& weight, Activation activation);
  int norm_activate(int x, const RowNorm& norm, const PackedLinear& weight, Activation activation);
  void lm_head(int x, const RowNorm& norm, const PackedLinear& weight);
  // norm: of this and that below, over width_of(x) numbers.
  void normalise(int x, const RowNorm& norm);
  void hidden(int x, const RowNorm& norm);
  int64_t width_of(int buffer) const;

  // What a step must keep to, gathered while recording.
  struct Limits {
    int64_t num_tokens_known = INT64_MAX;  // rows of the embedding
    int64_t num_token_types = INT64_MAX;
    int64_t num_positions = INT64_MAX;
    int64_t num_logits = 0;    // 0: the model gives none
    int64_t hidden_width = 0;  // 0: the model gives none
  };
  const Limits& limits() const { return limits_; }
  const KvCache& cache() const { return cache_; }

  // How long an op took in the last step, its waiting for the slowest thread included.
  struct OpTime {
    const char* name;
    double seconds;
  };
  std::vector<OpTime> op_times() const;
  // In all steps so far; moves while a step is under way.
  int64_t num_ops_run() const { return num_ops_run_; }

  // outputs: logits [R, num_logits], hidden [P, hidden_width]. The step must be valid (check_step). Throws OutOfMemory.
  // Steps come one after another: a second caller waits for the first. No op can be recorded after the first step.
  void run(const Step& step, const StepOutputs& outputs);

  // The same, and `after` is called with the index of each op once it has run. For looking into a model: every op is a
  // run of the pool of its own. What `after` throws ends the step.
  void watch(const Step& step, const StepOutputs& outputs, const std::function<void(size_t)>& after);
  // Within `after`: rows [T, width_of(buffer)] that the last op wrote or read, to out.
  void read(int buffer, int64_t num_rows, float* out) const;

 private:
  void prepare(const Step& step, const StepOutputs& outputs);
  void run_ops(const Step& step, size_t first, size_t end);
  void walk(const Walker& walker, size_t first, size_t end);
  Buffer& used(int index, int64_t width);
  Buffer& used_floats(int index, int64_t width);
  Buffer& made(int64_t width);
  void place_buffers();
  AttentionPlan& attention_plan(const Heads& heads, const Reach& reach);
  int add_activation(int x, const RowNorm& norm, const PackedLinear& weight, Activation activation);

  struct ReachPlan {
    Heads heads;
    Reach reach;
    AttentionPlan plan;
  };

  Pool& pool_;
  KvCache& cache_;
  Workspace workspace_;
  Limits limits_;
  std::atomic<bool> has_run_{false};
  std::atomic<int64_t> num_ops_run_{0};
  mutable std::mutex one_step_;
  StepOutputs outputs_;  // of the step that runs
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<std::unique_ptr<ReachPlan>> reaches_;
  std::vector<std::unique_ptr<Op>> ops_;
  std::vector<std::chrono::steady_clock::time_point> ended_;  // of the last step: its start, then the end of each op
};

// Throws std::invalid_argument that says what is wrong with a step for this plan.
void check_step(const Step& step, const Plan& plan);

}  // namespace noria
