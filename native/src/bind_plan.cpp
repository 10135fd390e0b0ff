#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "weights_owner.h"
#include "bindings.h"
#include "plan.h"

namespace nb = nanobind;

namespace noria {
namespace {

using Ints = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using IntTable = nb::ndarray<const int32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Floats = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Table = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Rows = nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

std::string number(int64_t value) { return std::to_string(value); }

// A norm over the last dimension; keeps its arrays alive.
struct Norm {
  Floats gamma;
  float eps;
  std::optional<Floats> beta;

  RowNorm over(int64_t width) const {
    need_width(gamma, width);
    if (beta) need_width(*beta, width);
    return {gamma.data(), eps, beta ? beta->data() : nullptr};
  }

  static void need_width(const Floats& numbers, int64_t width) {
    if (static_cast<int64_t>(numbers.shape(0)) == width) return;
    throw std::invalid_argument("a norm of " + number(numbers.shape(0)) + " numbers over rows of " + number(width));
  }
};

RowNorm over(const std::optional<Norm>& norm, int64_t width) { return norm ? norm->over(width) : RowNorm{}; }

// What joins a token's own embedding.
struct Sum {
  Table positions;
  Table token_types;
  Norm norm;

  EmbeddingSum over(int64_t width) const { return {view(positions), view(token_types), norm.over(width)}; }

  static FloatTable view(const Table& table) {
    return {table.data(), static_cast<int64_t>(table.shape(0)), static_cast<int64_t>(table.shape(1))};
  }
};

// Where a layer's q|k|v product goes.
struct Qkv {
  std::vector<LinearWeight> weights;  // each shares its memory with the one it was made from
  Heads heads;
  Table rope;
  std::optional<Norm> query_norm;
  std::optional<Norm> key_norm;
};

// The arrays of a kernels.batch.Batch, checked against each other.
struct StepArrays {
  Ints token_ids, token_types, positions, slots, query_starts, context_lens, logit_rows, hidden_rows;
  IntTable block_tables;

  explicit StepArrays(nb::handle batch)
      : token_ids(array<Ints>(batch, "token_ids")),
        token_types(array<Ints>(batch, "token_types")),
        positions(array<Ints>(batch, "positions")),
        slots(array<Ints>(batch, "slots")),
        query_starts(array<Ints>(batch, "query_starts")),
        context_lens(array<Ints>(batch, "context_lens")),
        logit_rows(array<Ints>(batch, "logit_rows")),
        hidden_rows(array<Ints>(batch, "hidden_rows")),
        block_tables(array<IntTable>(batch, "block_tables")) {
    for (const size_t length : {token_ids.size(), context_lens.size(), logit_rows.size(), hidden_rows.size(),
                                block_tables.shape(1)}) {
      if (length <= kLongest) continue;
      throw std::invalid_argument("a batch of " + number(length) + "; at most " + number(kLongest));
    }
    need("token_types", token_types.shape(0), token_ids.shape(0));
    need("positions", positions.shape(0), token_ids.shape(0));
    need("slots", slots.shape(0), token_ids.shape(0));
    need("query_starts", query_starts.shape(0), context_lens.shape(0) + 1);
    need("block_tables", block_tables.shape(0), context_lens.shape(0));
  }

  template <typename Array>
  static Array array(nb::handle batch, const char* name) {
    Array found;
    // As it is: what became int32 on the way could have lost what it said.
    if (nb::try_cast<Array>(batch.attr(name), found, false)) return found;
    const char* form = Array::Config::N == 1 ? "1 dimension" : "2 dimensions";
    throw nb::type_error((std::string(name) + " is not a contiguous array of int32 of " + form).c_str());
  }

  static constexpr size_t kLongest = 1 << 24;

  static void need(const char* name, size_t found, size_t wanted) {
    if (found == wanted) return;
    throw std::invalid_argument(std::string(name) + " has the length " + number(found) + "; it must be " +
                                number(wanted));
  }

  Step view() const {
    Step step;
    step.num_tokens = static_cast<int>(token_ids.shape(0));
    step.num_sequences = static_cast<int>(context_lens.shape(0));
    step.num_logit_rows = static_cast<int>(logit_rows.shape(0));
    step.num_hidden_rows = static_cast<int>(hidden_rows.shape(0));
    step.table_width = static_cast<int>(block_tables.shape(1));
    step.token_ids = token_ids.data();
    step.token_types = token_types.data();
    step.positions = positions.data();
    step.slots = slots.data();
    step.query_starts = query_starts.data();
    step.context_lens = context_lens.data();
    step.block_tables = block_tables.data();
    step.logit_rows = logit_rows.data();
    step.hidden_rows = hidden_rows.data();
    return step;
  }
};

// A plan as Python records it. Python objects that it points into are kept by keep_alive, arrays by `kept_`.
class Recorder {
 public:
  Recorder(Pool& pool, KvCache& cache) : plan_(pool, cache) {}

  int embed(const LinearWeight& table, const std::optional<Sum>& sum) {
    if (!sum) return plan_.embed(table.view(), {});
    kept_.push_back({sum->norm, {}, sum});
    return plan_.embed(table.view(), sum->over(table.view().k));
  }

  int norm_qkv(int x, const std::optional<Norm>& norm, const Qkv& qkv, int layer) {
    const RopeTable rope{qkv.rope.data(), static_cast<int64_t>(qkv.rope.shape(0)), static_cast<int>(qkv.rope.shape(1))};
    const int dim = qkv.heads.head_dim;
    const QkvFinish finish{qkv.heads, rope, over(qkv.query_norm, dim), over(qkv.key_norm, dim), layer};
    std::vector<PackedLinear> views;
    for (const LinearWeight& weight : qkv.weights) views.push_back(weight.view());
    kept_.push_back({norm, qkv, {}});
    return plan_.norm_qkv(x, over(norm, views[0].k), views, finish);
  }

  int attend(int q, const Heads& heads, float scale, const Reach& reach, int layer) {
    return plan_.attend(q, heads, scale, reach, layer);
  }

  void linear_add(int inputs, const LinearWeight& weight, int x) { plan_.linear_add(inputs, weight.view(), x); }

  int norm_glu(int x, const std::optional<Norm>& norm, const LinearWeight& weight, const std::string& activation) {
    kept_.push_back({norm, {}, {}});
    return plan_.norm_glu(x, over(norm, weight.view().k), weight.view(), activation_of(activation));
  }

  int norm_activate(int x, const std::optional<Norm>& norm, const LinearWeight& weight,
                    const std::string& activation) {
    kept_.push_back({norm, {}, {}});
    return plan_.norm_activate(x, over(norm, weight.view().k), weight.view(), activation_of(activation));
  }

  void normalise(int x, const Norm& norm) {
    kept_.push_back({norm, {}, {}});
    plan_.normalise(x, norm.over(plan_.width_of(x)));
  }

  void lm_head(int x, const Norm& norm, const LinearWeight& weight) {
    kept_.push_back({norm, {}, {}});
    plan_.lm_head(x, norm.over(weight.view().k), weight.view());
  }

  void hidden(int x, const std::optional<Norm>& norm) {
    if (norm) kept_.push_back({norm, {}, {}});
    plan_.hidden(x, over(norm, plan_.width_of(x)));
  }

  int64_t num_logits() const { return plan_.limits().num_logits; }

  int64_t hidden_width() const { return plan_.limits().hidden_width; }

  int64_t num_ops_run() const { return plan_.num_ops_run(); }

  std::vector<std::pair<std::string, double>> op_times() const {
    need_no_watch("the times of a step");
    std::vector<std::pair<std::string, double>> times;
    const InterpreterReleased released;  // a step may be under way
    for (const Plan::OpTime& one : plan_.op_times()) times.emplace_back(one.name, one.seconds);
    return times;
  }

  void run(nb::handle batch, Rows logits, Rows hidden) {
    need_no_watch("a step");
    const StepArrays arrays(batch);
    const Step step = arrays.view();
    const StepOutputs outputs = fitting(step, logits, hidden);
    const InterpreterReleased released;
    check_step(step, plan_);
    plan_.run(step, outputs);
  }

  void watch(nb::handle batch, Rows logits, Rows hidden, const nb::callable& after) {
    const StepArrays arrays(batch);
    const Step step = arrays.view();
    const StepOutputs outputs = fitting(step, logits, hidden);
    check_step(step, plan_);
    need_no_watch("a step");
    const Watch watch(num_rows_watched_, step.num_tokens);
    plan_.watch(step, outputs, [&after](size_t index) { after(index); });
  }

  void read(int buffer, Rows out) const {
    if (!num_rows_watched_) throw std::invalid_argument("no step is watched");
    StepArrays::need("out", out.shape(0), *num_rows_watched_);
    StepArrays::need("a row of out", out.shape(1), width_of(buffer));
    plan_.read(buffer, *num_rows_watched_, out.data());
  }

  int64_t width_of(int buffer) const { return plan_.width_of(buffer); }

 private:
  // While it lives, however it ends, a step of so many rows is watched.
  struct Watch {
    Watch(std::optional<int>& told, int num_rows) : told(told) { told = num_rows; }
    ~Watch() { told.reset(); }
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

    std::optional<int>& told;
  };

  // Steps come one after another, and one that is watched holds the interpreter, or has lent it to `after`: who waited
  // for its end with the interpreter in hand, or within `after`, would wait for ever.
  void need_no_watch(const char* what) const {
    if (!num_rows_watched_) return;
    throw std::runtime_error(std::string(what) + " is asked for while a step of " + number(*num_rows_watched_) +
                             " tokens is watched; ask when that has ended");
  }

  StepOutputs fitting(const Step& step, const Rows& logits, const Rows& hidden) const {
    StepArrays::need("logits", logits.shape(0), step.num_logit_rows);
    StepArrays::need("a row of logits", logits.shape(1), num_logits());
    StepArrays::need("hidden", hidden.shape(0), step.num_hidden_rows);
    StepArrays::need("a row of hidden", hidden.shape(1), hidden_width());
    return {logits.data(), hidden.data()};
  }

  struct Kept {
    std::optional<Norm> norm;
    std::optional<Qkv> qkv;
    std::optional<Sum> sum;
  };

  Plan plan_;
  std::vector<Kept> kept_;
  std::optional<int> num_rows_watched_;
};

KvKind kind_of(const std::string& dtype) {
  if (dtype == "float32") return KvKind::kF32;
  if (dtype == "float16") return KvKind::kF16;
  if (dtype == "bfloat16") return KvKind::kBf16;
  if (dtype == "int8") return KvKind::kInt8;
  throw std::invalid_argument("a KV cache cannot hold " + dtype + "; it holds float32, float16, bfloat16 or int8");
}

void bind_parts(nb::module_& module) {
  nb::class_<Pool>(module, "Pool")
      .def(nb::init<int>(), nb::arg("num_threads"))
      .def_prop_ro("num_threads", &Pool::num_threads);
  nb::class_<Heads>(module, "Heads").def(nb::init<int, int, int>(), nb::arg("num_heads"), nb::arg("num_kv_heads"),
                                         nb::arg("head_dim"));
  nb::class_<CacheShape>(module, "CacheShape")
      .def(nb::init<int, int, int, int, int>(), nb::arg("num_layers"), nb::arg("num_kv_heads"), nb::arg("head_dim"),
           nb::arg("block_size"), nb::arg("num_blocks"));
  nb::class_<KvCache>(module, "KvCache")
      .def("__init__", [](KvCache* self, const CacheShape& shape,
                          const std::string& dtype) { new (self) KvCache(shape, kind_of(dtype)); })
      .def("copy_block", &KvCache::copy_block, nb::arg("source"), nb::arg("destination"))
      .def_prop_ro("num_bytes", &KvCache::num_bytes)
      .def("fill", &KvCache::fill, nb::arg("value"), "Every number of the cache, so that tests see stale ones.");
  nb::class_<Norm>(module, "Norm").def(
      "__init__",
      [](Norm* self, Floats gamma, float eps, std::optional<Floats> beta) {
        new (self) Norm{std::move(gamma), eps, std::move(beta)};
      },
      nb::arg("gamma"), nb::arg("eps"), nb::arg("beta") = nb::none());
  nb::class_<Sum>(module, "EmbeddingSum")
      .def(
          "__init__",
          [](Sum* self, Table positions, Table token_types, const Norm& norm) {
            new (self) Sum{std::move(positions), std::move(token_types), norm};
          },
          nb::arg("positions"), nb::arg("token_types"), nb::arg("norm"));
  nb::class_<Reach>(module, "Reach")
      .def(nb::init<int, int>(), nb::arg("back"), nb::arg("ahead"))
      .def_ro_static("ALL", &Reach::kAll);
  nb::class_<Qkv>(module, "Qkv").def(
      "__init__",
      [](Qkv* self, const std::vector<const LinearWeight*>& weights, const Heads& heads, Table rope,
         std::optional<Norm> query_norm, std::optional<Norm> key_norm) {
        if (weights.empty()) throw std::invalid_argument("a projection without weights");
        std::vector<LinearWeight> kept;
        for (const LinearWeight* weight : weights) {
          if (weight == nullptr) throw std::invalid_argument("a projection's weight is None");
          kept.push_back(*weight);
        }
        new (self) Qkv{std::move(kept), heads, std::move(rope), std::move(query_norm), std::move(key_norm)};
      },
      nb::arg("weights"), nb::arg("heads"), nb::arg("rope"), nb::arg("query_norm").none(), nb::arg("key_norm").none());
}

}  // namespace

void bind_plan(nb::module_& module) {
  bind_parts(module);
  nb::class_<Recorder>(module, "Plan")
      .def(nb::init<Pool&, KvCache&>(), nb::arg("pool"), nb::arg("cache"), nb::keep_alive<1, 2>(),
           nb::keep_alive<1, 3>())
      .def("embed", &Recorder::embed, nb::arg("table"), nb::arg("sum").none() = nb::none(), nb::keep_alive<1, 2>())
      .def("norm_qkv", &Recorder::norm_qkv, nb::arg("x"), nb::arg("norm").none(), nb::arg("qkv"), nb::arg("layer"))
      .def("attend", &Recorder::attend, nb::arg("q"), nb::arg("heads"), nb::arg("scale"), nb::arg("reach"),
           nb::arg("layer"))
      .def("linear_add", &Recorder::linear_add, nb::arg("inputs"), nb::arg("weight"), nb::arg("x"),
           nb::keep_alive<1, 3>())
      .def("norm_glu", &Recorder::norm_glu, nb::arg("x"), nb::arg("norm").none(), nb::arg("weight"),
           nb::arg("activation"), nb::keep_alive<1, 4>())
      .def("norm_activate", &Recorder::norm_activate, nb::arg("x"), nb::arg("norm").none(), nb::arg("weight"),
           nb::arg("activation"), nb::keep_alive<1, 4>())
      .def("normalise", &Recorder::normalise, nb::arg("x"), nb::arg("norm"))
      .def("lm_head", &Recorder::lm_head, nb::arg("x"), nb::arg("norm"), nb::arg("weight"), nb::keep_alive<1, 4>())
      .def("hidden", &Recorder::hidden, nb::arg("x"), nb::arg("norm").none())
      .def_prop_ro("num_logits", &Recorder::num_logits, "0: it records no lm_head.")
      .def_prop_ro("hidden_width", &Recorder::hidden_width, "0: it records no hidden.")
      .def_prop_ro("num_ops_run", &Recorder::num_ops_run, "In all steps so far; moves while a step is under way.")
      .def_prop_ro("op_times", &Recorder::op_times,
                   "(name, seconds) of each op in the last step, waiting for the slowest thread included.")
      .def("run", &Recorder::run, nb::arg("batch"), nb::arg("logits").noconvert(), nb::arg("hidden").noconvert(),
           "One step; lets the interpreter go on. logits: [R, num_logits]; hidden: [P, hidden_width].")
      .def("watch", &Recorder::watch, nb::arg("batch"), nb::arg("logits").noconvert(),
           nb::arg("hidden").noconvert(), nb::arg("after"),
           "One step as in run, which tells `after` the index of each op that has run.")
      .def("read", &Recorder::read, nb::arg("buffer"), nb::arg("out").noconvert(),
           "Within `after`: what a buffer holds, to out [T, width_of(buffer)].")
      .def("width_of", &Recorder::width_of, nb::arg("buffer"));
}

}  // namespace noria
