#include "plan.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "ops.h"

namespace noria {
namespace {

constexpr int64_t kMostWidth = 1 << 24;      // of rows of q|k|v
constexpr int64_t kMostPositions = 1 << 30;  // counted in 32 bits, with some room

std::string number(int64_t value) { return std::to_string(value); }

void need(bool holds, const std::string& text) {
  if (!holds) throw std::invalid_argument(text);
}

void need_heads(const Heads& heads, int layer, const CacheShape& shape) {
  need(heads.head_dim == shape.head_dim && heads.num_kv_heads == shape.num_kv_heads,
       "the cache holds " + number(shape.num_kv_heads) + " heads of " + number(shape.head_dim) + ", the layer has " +
           number(heads.num_kv_heads) + " of " + number(heads.head_dim));
  need(heads.num_heads > 0 && heads.num_heads % heads.num_kv_heads == 0,
       number(heads.num_heads) + " query heads cannot share " + number(heads.num_kv_heads) + " key/value heads");
  need((int64_t(heads.num_heads) + 2 * int64_t(heads.num_kv_heads)) * heads.head_dim <= kMostWidth,
       number(heads.num_heads) + " heads of " + number(heads.head_dim) + " are more than " + number(kMostWidth));
  need(layer >= 0 && layer < shape.num_layers, "layer " + number(layer) + " of a cache of " + number(shape.num_layers));
}

void need_rope(const RopeTable& rope, const Heads& heads) {
  need(rope.dim % 2 == 0 && rope.dim <= heads.head_dim,
       "rotating " + number(rope.dim) + " of " + number(heads.head_dim) + " dimensions");
  need(rope.num_positions <= kMostPositions,
       number(rope.num_positions) + " positions; at most " + number(kMostPositions));
}

void need_plain(const PackedLinear& weight) {
  need(weight.order == ColumnOrder::kPlain,
       "gate over up of " + number(weight.n) + " rows where a plain weight belongs");
}

// Of rows that all the weights take in one form: every weight takes 16 bits, but some take no fewer.
Precision shared_precision(const std::vector<PackedLinear>& weights) {
  for (const PackedLinear& weight : weights) {
    const bool takes_bytes = row_form(weight.format, Precision::kInt8) == RowForm::kBytes;
    if (weight.format.is_quantised() && !takes_bytes) return Precision::kInt16;
  }
  return Precision::kInt8;
}

}  // namespace

void Buffer::reserve(int64_t num_rows) {
  if (as_floats) slot->floats.reserve(array_bytes(num_rows, width, sizeof(float)));
  if (as_quants) slot->quants.reserve(quant_rows_bytes(num_rows, width, quants_form));
}

Buffer& Plan::used(int index, int64_t width) {
  need(index >= 0 && index < static_cast<int>(buffers_.size()), "buffer " + number(index) + " was never made");
  Buffer& found = *buffers_[index];
  need(found.width == width,
       "a buffer of rows of " + number(found.width) + " numbers is used as one of " + number(width));
  found.last_op = ops_.size();
  return found;
}

Buffer& Plan::used_floats(int index, int64_t width) {
  Buffer& found = used(index, width);
  found.as_floats = true;
  return found;
}

Buffer& Plan::made(int64_t width) {
  need(!has_run_, "a plan that has run takes no more ops");
  buffers_.push_back(std::make_unique<Buffer>(width, ops_.size()));
  return *buffers_.back();
}

// A buffer takes a slot whose last one is not read any more when it is first written.
void Plan::place_buffers() {
  for (const auto& buffer : buffers_) {
    if (buffer->slot != nullptr) continue;
    for (const auto& slot : slots_) {
      if (slot->last_op < buffer->first_op) buffer->slot = slot.get();
    }
    if (buffer->slot == nullptr) {
      slots_.push_back(std::make_unique<Slot>());
      buffer->slot = slots_.back().get();
    }
    buffer->slot->last_op = buffer->last_op;
  }
}

AttentionPlan& Plan::attention_plan(const Heads& heads, const Reach& reach) {
  for (const auto& one : reaches_) {
    const bool is_same = one->heads.group() == heads.group() && one->heads.num_kv_heads == heads.num_kv_heads;
    if (is_same && one->reach == reach) return one->plan;
  }
  reaches_.push_back(std::make_unique<ReachPlan>());
  reaches_.back()->heads = heads;
  reaches_.back()->reach = reach;
  return reaches_.back()->plan;
}

int Plan::embed(const PackedLinear& table, const EmbeddingSum& sum) {
  limits_.num_tokens_known = std::min(limits_.num_tokens_known, table.n);
  if (sum.positions.data != nullptr) {
    for (const FloatTable* added : {&sum.positions, &sum.token_types}) {
      need(added->width == table.k && added->num_rows > 0 && added->num_rows <= kMostPositions,
           "a table of [" + number(added->num_rows) + ", " + number(added->width) + "] added to rows of " +
               number(table.k));
    }
    limits_.num_positions = std::min(limits_.num_positions, sum.positions.num_rows);
    limits_.num_token_types = std::min(limits_.num_token_types, sum.token_types.num_rows);
  }
  Buffer& x = made(table.k);
  x.as_floats = true;
  ops_.push_back(std::make_unique<EmbedOp>(table, sum, x));
  return static_cast<int>(buffers_.size()) - 1;
}

int Plan::norm_qkv(int x, const RowNorm& norm, const std::vector<PackedLinear>& weights, const QkvFinish& finish) {
  need_heads(finish.heads, finish.layer, cache_.shape());
  need_rope(finish.rope, finish.heads);
  const int64_t width = finish.heads.query_size() + 2 * finish.heads.kv_size();
  int64_t num_rows = 0;
  for (const PackedLinear& weight : weights) {
    need_plain(weight);
    num_rows += weight.num_outputs();
    need(weight.k == weights[0].k && weight.format.is_quantised() == weights[0].format.is_quantised(),
         "the weights of one projection take rows of different forms");
  }
  need(num_rows == width, "weights of " + number(num_rows) + " rows; the heads have " + number(width));
  limits_.num_positions = std::min(limits_.num_positions, finish.rope.num_positions);
  const LinearInput input(workspace_, weights[0], norm, shared_precision(weights));
  auto op = std::make_unique<NormQkvOp>(input, weights, finish, cache_);
  op->x = &used_floats(x, weights[0].k);
  op->qkv = &made(width);
  op->qkv->as_floats = true;
  ops_.push_back(std::move(op));
  return static_cast<int>(buffers_.size()) - 1;
}

int Plan::attend(int q, const Heads& heads, float scale, const Reach& reach, int layer) {
  need_heads(heads, layer, cache_.shape());
  need(reach.back >= 0 && reach.ahead >= 0,
       "a reach of " + number(reach.back) + " tokens back and " + number(reach.ahead) + " ahead");
  const AttentionCall call{nullptr, nullptr, &cache_, heads, scale, reach, layer, nullptr, 0, nullptr, nullptr};
  auto op = std::make_unique<AttendOp>(call, attention_plan(heads, reach), workspace_);
  op->q = &used_floats(q, heads.query_size() + 2 * heads.kv_size());
  op->out = &made(heads.query_size());
  op->out->as_floats = true;
  ops_.push_back(std::move(op));
  return static_cast<int>(buffers_.size()) - 1;
}

void Plan::linear_add(int inputs, const PackedLinear& weight, int x) {
  need_plain(weight);
  need(!has_run_, "a plan that has run takes no more ops");
  need(inputs != x, "buffer " + number(x) + " cannot be added to while it is read");
  auto op = std::make_unique<LinearAddOp>(LinearInput(workspace_, weight, {}, Precision::kInt8), weight);
  op->inputs = &used(inputs, weight.k);
  op->x = &used_floats(x, weight.num_outputs());
  const bool has_floats = op->inputs->as_floats;  // attention's; a gate gives what is asked of it
  if (!has_floats && weight.format.is_quantised()) {
    const RowForm form = row_form(weight.format, Precision::kInt8);
    need(!op->inputs->as_quants || op->inputs->quants_form == form,
         "buffer " + number(inputs) + " is read by weights that take rows of 8 bits and by some that take 16");
    op->inputs->as_quants = true;
    op->inputs->quants_form = form;
  } else {
    op->inputs->as_floats = true;
  }
  ops_.push_back(std::move(op));
}

int Plan::norm_glu(int x, const RowNorm& norm, const PackedLinear& weight, Activation activation) {
  need(weight.order == ColumnOrder::kGlu, "a weight of " + number(weight.n) + " rows that is not gate over up");
  return add_activation(x, norm, weight, activation);
}

int Plan::norm_activate(int x, const RowNorm& norm, const PackedLinear& weight, Activation activation) {
  need_plain(weight);
  return add_activation(x, norm, weight, activation);
}

int Plan::add_activation(int x, const RowNorm& norm, const PackedLinear& weight, Activation activation) {
  const LinearInput input(workspace_, weight, norm, Precision::kInt8);
  auto op = std::make_unique<NormActivateOp>(input, weight, activation);
  op->x = &used_floats(x, weight.k);
  op->out = &made(weight.num_outputs());
  ops_.push_back(std::move(op));
  return static_cast<int>(buffers_.size()) - 1;
}

void Plan::normalise(int x, const RowNorm& norm) {
  need(!has_run_, "a plan that has run takes no more ops");
  ops_.push_back(std::make_unique<NormaliseOp>(norm, used_floats(x, width_of(x))));
}

void Plan::lm_head(int x, const RowNorm& norm, const PackedLinear& weight) {
  need_plain(weight);
  need(!has_run_, "a plan that has run takes no more ops");
  need(limits_.num_logits == 0, "logits of " + number(limits_.num_logits) + " numbers are given already");
  const LinearInput input(workspace_, weight, norm, Precision::kInt16);
  auto op = std::make_unique<LmHeadOp>(input, weight, workspace_, &outputs_);
  op->x = &used_floats(x, weight.k);
  ops_.push_back(std::move(op));
  limits_.num_logits = weight.num_outputs();
}

int64_t Plan::width_of(int buffer) const {
  need(buffer >= 0 && buffer < static_cast<int>(buffers_.size()), "buffer " + number(buffer) + " was never made");
  return buffers_[buffer]->width;
}

void Plan::hidden(int x, const RowNorm& norm) {
  const int64_t width = width_of(x);
  need(!has_run_, "a plan that has run takes no more ops");
  need(limits_.hidden_width == 0, "hidden states of " + number(limits_.hidden_width) + " numbers are given already");
  ops_.push_back(std::make_unique<HiddenOp>(used_floats(x, width), norm, &outputs_));
  limits_.hidden_width = width;
}

void Plan::run(const Step& step, const StepOutputs& outputs) {
  pool_.need_own_process();
  const std::lock_guard<std::mutex> lock(one_step_);
  prepare(step, outputs);
  run_ops(step, 0, ops_.size());
}

void Plan::watch(const Step& step, const StepOutputs& outputs, const std::function<void(size_t)>& after) {
  pool_.need_own_process();
  const std::lock_guard<std::mutex> lock(one_step_);
  prepare(step, outputs);
  for (size_t index = 0; index < ops_.size(); ++index) {
    run_ops(step, index, index + 1);
    after(index);
  }
}

void Plan::prepare(const Step& step, const StepOutputs& outputs) {
  has_run_ = true;
  outputs_ = outputs;
  place_buffers();
  for (const auto& one : reaches_) one->plan.make(step, one->heads, one->reach, pool_.num_threads());
  for (const auto& op : ops_) op->prepare(step);
  ended_.resize(ops_.size() + 1);
}

void Plan::run_ops(const Step& step, size_t first, size_t end) {
  struct Context {
    const Step* step;
    Plan* plan;
    size_t first, end;
  } context{&step, this, first, end};
  pool_.run(
      [](void* data, int thread_index, int num_threads) {
        const Context& context = *static_cast<Context*>(data);
        const Walker walker{&context.plan->pool_, context.step, thread_index, num_threads};
        context.plan->walk(walker, context.first, context.end);
      },
      &context);
}

void Plan::walk(const Walker& walker, size_t first, size_t end) {
  // One thread keeps the time: every op ends in a barrier.
  const bool keeps_time = walker.index == 0;
  if (keeps_time) ended_[first] = std::chrono::steady_clock::now();
  for (size_t index = first; index < end; ++index) {
    ops_[index]->run(walker);
    if (keeps_time) {
      ended_[index + 1] = std::chrono::steady_clock::now();
      ++num_ops_run_;
    }
  }
}

void Plan::read(int buffer, int64_t num_rows, float* out) const {
  need(width_of(buffer) > 0 && buffers_[buffer]->slot != nullptr, "buffer " + number(buffer) + " holds nothing yet");
  const Buffer& from = *buffers_[buffer];
  if (from.as_floats) {
    std::copy_n(from.floats(), num_rows * from.width, out);
  } else if (from.as_quants) {
    dequantise_rows(from.quants(num_rows), num_rows, out);
  }
}

std::vector<Plan::OpTime> Plan::op_times() const {
  pool_.need_own_process();
  const std::lock_guard<std::mutex> lock(one_step_);
  std::vector<OpTime> times;
  for (size_t index = 0; index + 1 < ended_.size(); ++index) {
    const std::chrono::duration<double> taken = ended_[index + 1] - ended_[index];
    times.push_back({ops_[index]->name(), taken.count()});
  }
  return times;
}

}  // namespace noria
