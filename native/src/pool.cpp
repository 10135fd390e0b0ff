#include "pool.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace noria {
namespace {

// A pause takes some 40 to 140 cycles: tens of microseconds inside a step, a few hundred between steps.
constexpr int kSpinsInside = 2000;
constexpr int kSpinsBetween = 6000;
constexpr int kMostThreads = 1024;

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

void futex_wait(std::atomic<uint32_t>& word, uint32_t seen) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
}

void futex_wake_all(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

PlainArithmetic::PlainArithmetic() : before_(0) {
#if defined(__x86_64__)
  constexpr unsigned kDefault = 0x1f80;  // no exception is signalled, and nothing else is set
  before_ = _mm_getcsr();
  _mm_setcsr(kDefault);
#endif
}

PlainArithmetic::~PlainArithmetic() {
#if defined(__x86_64__)
  _mm_setcsr(before_);
#endif
}

void Pool::Event::advance() {
  value.fetch_add(1, std::memory_order_seq_cst);
  // A sleeper counts itself before the kernel compares the word, so one of the two sees the other.
  if (sleepers.load(std::memory_order_seq_cst) != 0) futex_wake_all(value);
}

void Pool::Event::wait_beyond(uint32_t seen, int num_spins) {
  for (int spin = 0; spin < num_spins; ++spin) {
    if (now() != seen) return;
    pause();
  }
  sleepers.fetch_add(1, std::memory_order_seq_cst);
  while (value.load(std::memory_order_seq_cst) == seen) futex_wait(value, seen);
  sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

Pool::Pool(int num_threads) : num_threads_(num_threads), owner_(getpid()) {
  if (num_threads < 1 || num_threads > kMostThreads) {
    throw std::invalid_argument("num_threads is " + std::to_string(num_threads) + "; at least 1, at most " +
                                std::to_string(kMostThreads));
  }
  try {
    threads_.reserve(num_threads - 1);
    for (int index = 1; index < num_threads; ++index) threads_.emplace_back([this, index] { work(index); });
  } catch (const std::system_error&) {
    const size_t started = threads_.size();
    stop();
    throw std::runtime_error("the system starts no more than " + std::to_string(started + 1) + " of " +
                             std::to_string(num_threads) + " threads; ask for fewer");
  } catch (...) {  // no memory for one more; threads that nobody waits for would end the process
    stop();
    throw;
  }
  const uint32_t num_started = static_cast<uint32_t>(threads_.size());
  for (uint32_t seen = up_.now(); seen != num_started; seen = up_.now()) up_.wait_beyond(seen, kSpinsInside);
}

Pool::~Pool() { stop(); }

void Pool::stop() {
  if (getpid() != owner_) {
    // There is nobody to wait for, and what the handles name may be another thread's by now: they are left alone.
    new std::vector<std::thread>(std::move(threads_));
    return;
  }
  stopping_ = true;
  start_.advance();
  for (std::thread& thread : threads_) thread.join();
}

void Pool::need_own_process() const {
  const pid_t here = getpid();
  if (here == owner_) return;
  throw std::runtime_error("process " + std::to_string(owner_) + " started these threads, and process " +
                           std::to_string(here) +
                           ", forked from it, has none of them; load the model where it is used");
}

void Pool::run(Task task, void* context) {
  need_own_process();
  const std::lock_guard<std::mutex> lock(one_run_);
  task_ = task;
  context_ = context;
  start_.advance();
  {
    const PlainArithmetic plain;
    task(context, 0, num_threads_);
  }
  barrier();
}

void Pool::barrier() {
  if (num_threads_ == 1) return;
  const uint32_t seen = gate_.now();
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == num_threads_) {
    arrived_.store(0, std::memory_order_relaxed);
    gate_.advance();
  } else {
    gate_.wait_beyond(seen, kSpinsInside);
  }
}

void Pool::work(int thread_index) {
  const PlainArithmetic plain;
  up_.advance();
  for (uint32_t seen = 0;; ++seen) {
    start_.wait_beyond(seen, kSpinsBetween);
    if (stopping_) return;
    task_(context_, thread_index, num_threads_);
    barrier();
  }
}

}  // namespace noria
