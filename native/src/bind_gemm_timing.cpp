#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <ctime>
#include <limits>
#include <stdexcept>
#include <vector>

#include "bind_gemm.h"
#include "bindings.h"
#include "gemm_peaks.h"
#include "pool.h"
#include "weights_owner.h"

namespace nb = nanobind;

namespace noria {
namespace {

// A task and how long each thread was at it, in its own processor time: what others take of a shared machine's
// processors does not count.
struct Timed {
  Pool::Task task;
  void* context;
  std::vector<double> seconds;
};

double thread_seconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec + 1e-9 * now.tv_nsec;
}

void run_timed(void* context, int index, int count) {
  Timed& timed = *static_cast<Timed*>(context);
  const double start = thread_seconds();
  timed.task(timed.context, index, count);
  timed.seconds[index] = thread_seconds() - start;
}

// Seconds of the slowest thread in the fastest of `repeats` runs of the task by all threads.
double fastest(int num_threads, int repeats, Pool::Task task, void* context) {
  if (num_threads < 1 || repeats < 1) throw std::invalid_argument("threads and repeats are at least 1");
  const InterpreterReleased released;
  Pool pool(num_threads);
  Timed timed{task, context, std::vector<double>(num_threads)};
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i <= repeats; ++i) {  // one more, to warm up
    pool.run(run_timed, &timed);
    const double slowest = *std::max_element(timed.seconds.begin(), timed.seconds.end());
    if (i > 0) best = std::min(best, slowest);
  }
  return best;
}

struct Chain {
  std::vector<const PackedLinear*> weights;
  Activations x;
  std::vector<Epilogue> epilogues;
};

void multiply_all(void* context, int index, int count) {
  const Chain& chain = *static_cast<Chain*>(context);
  for (size_t i = 0; i < chain.weights.size(); ++i) {
    const int64_t size = chain.weights[i]->num_panels();
    gemm_panels(*chain.weights[i], chain.x, size * index / count, size * (index + 1) / count, chain.epilogues[i]);
  }
}

template <typename Rows>
double time_products(const std::vector<const LinearWeight*>& weights, const Rows& x, const MutableMatrix& out,
                     int num_threads, int repeats) {
  Chain chain;
  chain.x = activations_of(x);
  for (const LinearWeight* weight : weights) {
    if (weight == nullptr) throw std::invalid_argument("a weight is None");
    Epilogue store;
    store.out = out.data();
    store.stride = out.shape(1);
    check_gemm(weight->view(), chain.x, store);
    if (int64_t(out.shape(0)) < chain.x.num_rows || int64_t(out.shape(1)) < weight->view().num_outputs()) {
      throw std::invalid_argument("the output is smaller than the product");
    }
    chain.weights.push_back(&weight->view());
    chain.epilogues.push_back(store);
  }
  return fastest(num_threads, repeats, multiply_all, &chain);
}

struct Stream {
  const uint8_t* data;
  int64_t num_bytes;
};

void read_share(void* context, int index, int count) {
  const Stream& stream = *static_cast<Stream*>(context);
  const int64_t begin = stream.num_bytes / 64 * index / count * 64;
  const int64_t end = stream.num_bytes / 64 * (index + 1) / count * 64;
  read_stream(stream.data + begin, end - begin);
}

double time_read(const Bytes& data, int num_threads, int repeats) {
  Stream stream{reinterpret_cast<const uint8_t*>(data.data()), int64_t(data.size())};
  return fastest(num_threads, repeats, read_share, &stream);
}

double peak_macs(const std::string& kind, int num_threads) {
  const Peak peak = peak_of(kind);
  struct Context {
    Peak peak;
    int64_t num_rounds;
  } context{peak, 1 << 19};
  const double seconds = fastest(
      num_threads, 8,
      [](void* at, int, int) {
        const Context& run = *static_cast<Context*>(at);
        run.peak.run(run.num_rounds);
      },
      &context);
  return double(peak.macs_per_round) * context.num_rounds * num_threads / seconds;
}

template <typename Rows>
void bind_time(nb::module_& module) {
  module.def("time_products", &time_products<Rows>, nb::arg("weights"), nb::arg("x"), nb::arg("out"),
             nb::arg("num_threads"), nb::arg("repeats"),
             "Processor seconds of the slowest thread for x times each weight in turn, each thread an equal share: the "
             "fastest of the repeats.");
}

}  // namespace

void bind_gemm_timing(nb::module_& module) {
  bind_time<Matrix>(module);
  bind_time<QuantisedRows>(module);
  module.def("time_read", &time_read, nb::arg("data"), nb::arg("num_threads"), nb::arg("repeats"),
             "Processor seconds of the slowest thread for reading data [m, n] int8 once, all threads together.");
  module.def("peak_macs", &peak_macs, nb::arg("kind"), nb::arg("num_threads"),
             "Products a second of a kernel's inner step from registers. kind: float32, w8 or w4.");
}

}  // namespace noria
