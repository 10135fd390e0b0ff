// The ops that a plan records. Memory is taken in `prepare` and looked up in `run`: until all ops are prepared it may
// still move.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "linear_op.h"
#include "plan.h"

namespace noria {

class EmbedOp : public Op {
 public:
  EmbedOp(const PackedLinear& table, const EmbeddingSum& sum, Buffer& x) : table_(table), sum_(sum), x_(x) {}

  const char* name() const override { return "embed"; }

  void prepare(const Step& step) override { x_.reserve(step.num_tokens); }

  void run(const Walker& walker) override {
    const int64_t num_rows = walker.step->num_tokens;
    const int64_t begin = walker.begin_of(num_rows), end = walker.end_of(num_rows);
    for (int64_t row = begin; row < end; ++row) {
      float* to = x_.floats() + row * table_.k;
      read_floats(table_, walker.step->token_ids[row], to);
      if (sum_.positions.data == nullptr) continue;
      const float* position = sum_.positions.row(walker.step->positions[row]);
      const float* type = sum_.token_types.row(walker.step->token_types[row]);
      for (int64_t i = 0; i < table_.k; ++i) to[i] += type[i] + position[i];
    }
    if (sum_.norm.gamma != nullptr) norm_rows({x_.floats(), table_.k, table_.k}, sum_.norm, begin, end, x_.floats());
    walker.pool->barrier();
  }

 private:
  const PackedLinear table_;
  const EmbeddingSum sum_;
  Buffer& x_;
};

class NormQkvOp : public Op {
 public:
  // weights: one below the other they are the rows q | k | v; all take the same form of rows.
  NormQkvOp(LinearInput input, const std::vector<PackedLinear>& weights, const QkvFinish& finish, KvCache& cache)
      : input_(input), finish_(finish), cache_(cache) {
    for (const PackedLinear& weight : weights) parts_.push_back(std::make_unique<Part>(weight));
  }

  Buffer* x = nullptr;
  Buffer* qkv = nullptr;

  const char* name() const override { return "norm_qkv"; }

  void prepare(const Step& step) override {
    qkv->reserve(step.num_tokens);
    input_.prepare(step.num_tokens);
    for (const auto& part : parts_) part->panels.prepare();
  }

  void run(const Walker& walker) override {
    const Activations rows = input_.make(walker, x->floats(), walker.step->num_tokens);
    Epilogue store;
    store.out = qkv->floats();
    store.stride = qkv->width;
    for (const auto& part : parts_) {
      part->panels.run(walker, part->weight, rows, store);
      store.out += part->weight.num_outputs();
    }
    walker.pool->barrier();
    const int64_t units = finish_.num_units(*walker.step);
    finish_.run(*walker.step, walker.begin_of(units), walker.end_of(units), qkv->floats(), cache_);
    walker.pool->barrier();
  }

 private:
  struct Part {
    explicit Part(const PackedLinear& weight) : weight(weight) {}
    const PackedLinear weight;
    PanelWork panels;
  };

  LinearInput input_;
  std::vector<std::unique_ptr<Part>> parts_;
  const QkvFinish finish_;
  KvCache& cache_;
};

class AttendOp : public Op {
 public:
  AttendOp(const AttentionCall& call, AttentionPlan& plan, Workspace& workspace)
      : call_(call), plan_(plan), workspace_(workspace) {}

  Buffer* q = nullptr;
  Buffer* out = nullptr;

  const char* name() const override { return "attend"; }

  void prepare(const Step& step) override {
    const int dim = call_.heads.head_dim;
    out->reserve(step.num_tokens);
    workspace_.shares.reserve(size_t(plan_.num_share_rows()) * share_stride(dim) * sizeof(float));
    for (Room& room : workspace_.own_scratch) room.reserve(attention_scratch(plan_, dim) * sizeof(float));
    next_.reset();
  }

  void run(const Walker& walker) override {
    AttentionCall call = call_;
    call.table = &attention_table();
    call.step = walker.step;
    call.query_stride = static_cast<int>(q->width);
    call.queries = q->floats();
    call.out = out->floats();
    call.shares = workspace_.shares.floats();
    float* scratch = workspace_.own_scratch[walker.index].floats();
    const auto size = static_cast<int64_t>(plan_.work().size());
    for (int64_t index = next_.take(1); index < size; index = next_.take(1)) {
      attend_avx2(call, plan_, plan_.work()[index], scratch);
    }
    walker.pool->barrier();
  }

 private:
  const AttentionCall call_;
  AttentionPlan& plan_;
  Workspace& workspace_;
  Counter next_;
};

class LinearAddOp : public Op {
 public:
  LinearAddOp(LinearInput input, const PackedLinear& weight) : input_(input), weight_(weight) {}

  Buffer* inputs = nullptr;
  Buffer* x = nullptr;

  const char* name() const override { return "linear_add"; }

  void prepare(const Step& step) override {
    if (!takes_quants()) input_.prepare(step.num_tokens);
    panels_.prepare();
  }

  void run(const Walker& walker) override {
    Epilogue add;
    add.kind = Epilogue::Kind::kAdd;
    add.out = x->floats();
    add.stride = x->width;
    Activations rows;
    if (takes_quants()) {
      rows.num_rows = walker.step->num_tokens;
      rows.quants = inputs->quants(walker.step->num_tokens);
    } else {
      rows = input_.make(walker, inputs->floats(), walker.step->num_tokens);
    }
    panels_.run(walker, weight_, rows, add);
    walker.pool->barrier();
  }

 private:
  bool takes_quants() const { return inputs->as_quants && !inputs->as_floats && weight_.format.is_quantised(); }

  LinearInput input_;
  const PackedLinear weight_;
  PanelWork panels_;
};

// A projection whose outputs go through an activation, or gate others.
class NormActivateOp : public Op {
 public:
  NormActivateOp(LinearInput input, const PackedLinear& weight, Activation activation)
      : input_(input), weight_(weight), activation_(activation) {}

  Buffer* x = nullptr;
  Buffer* out = nullptr;

  const char* name() const override { return is_gated() ? "norm_glu" : "norm_activate"; }

  void prepare(const Step& step) override {
    out->reserve(step.num_tokens);
    input_.prepare(step.num_tokens);
    panels_.prepare();
  }

  void run(const Walker& walker) override {
    Epilogue epilogue;
    epilogue.kind = is_gated() ? Epilogue::Kind::kGate : Epilogue::Kind::kActivate;
    epilogue.activation = activation_;
    epilogue.stride = out->width;
    if (out->as_floats) epilogue.out = out->floats();
    if (out->as_quants) epilogue.quants = out->quants(walker.step->num_tokens);
    panels_.run(walker, weight_, input_.make(walker, x->floats(), walker.step->num_tokens), epilogue);
    walker.pool->barrier();
  }

 private:
  bool is_gated() const { return weight_.order == ColumnOrder::kGlu; }

  LinearInput input_;
  const PackedLinear weight_;
  const Activation activation_;
  PanelWork panels_;
};

// In place.
class NormaliseOp : public Op {
 public:
  NormaliseOp(const RowNorm& norm, Buffer& x) : norm_(norm), x_(x) {}

  const char* name() const override { return "normalise"; }

  void prepare(const Step&) override {}

  void run(const Walker& walker) override {
    const int64_t num_rows = walker.step->num_tokens;
    const FloatRows rows{x_.floats(), x_.width, x_.width};
    norm_rows(rows, norm_, walker.begin_of(num_rows), walker.end_of(num_rows), x_.floats());
    walker.pool->barrier();
  }

 private:
  const RowNorm norm_;
  Buffer& x_;
};

class LmHeadOp : public Op {
 public:
  LmHeadOp(LinearInput input, const PackedLinear& weight, Workspace& workspace, const StepOutputs* outputs)
      : input_(input), weight_(weight), workspace_(workspace), outputs_(outputs) {}

  Buffer* x = nullptr;

  const char* name() const override { return "lm_head"; }

  void prepare(const Step& step) override {
    workspace_.gathered.reserve(array_bytes(step.num_logit_rows, weight_.k, sizeof(float)));
    input_.prepare(step.num_logit_rows);
    panels_.prepare();
  }

  void run(const Walker& walker) override {
    const int64_t num_rows = walker.step->num_logit_rows, width = weight_.k;
    if (num_rows == 0) return;
    float* rows = workspace_.gathered.floats();
    for (int64_t row = walker.begin_of(num_rows); row < walker.end_of(num_rows); ++row) {
      const float* from = x->floats() + walker.step->logit_rows[row] * width;
      std::memcpy(rows + row * width, from, width * sizeof(float));
    }
    walker.pool->barrier();
    Epilogue store;
    store.out = outputs_->logits;
    store.stride = weight_.num_outputs();
    panels_.run(walker, weight_, input_.make(walker, rows, num_rows), store);
    walker.pool->barrier();
  }

 private:
  LinearInput input_;
  const PackedLinear weight_;
  Workspace& workspace_;
  const StepOutputs* outputs_;
  PanelWork panels_;
};

// The wanted rows of the stream, normalised, for whoever is to make something of them.
class HiddenOp : public Op {
 public:
  HiddenOp(Buffer& x, const RowNorm& norm, const StepOutputs* outputs) : x_(x), norm_(norm), outputs_(outputs) {}

  const char* name() const override { return "hidden"; }

  void prepare(const Step&) override {}

  void run(const Walker& walker) override {
    const int64_t num_rows = walker.step->num_hidden_rows, width = x_.width;
    if (num_rows == 0) return;
    for (int64_t row = walker.begin_of(num_rows); row < walker.end_of(num_rows); ++row) {
      const float* from = x_.floats() + walker.step->hidden_rows[row] * width;
      float* to = outputs_->hidden + row * width;
      if (norm_.gamma == nullptr) {
        std::memcpy(to, from, width * sizeof(float));
      } else {
        norm_rows({from, width, width}, norm_, 0, 1, to);
      }
    }
    walker.pool->barrier();
  }

 private:
  Buffer& x_;
  const RowNorm norm_;
  const StepOutputs* outputs_;
};

}  // namespace noria
