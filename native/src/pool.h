// Threads that live as long as a model and walk every step together.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace noria {

// While it lives, its thread rounds to nearest and keeps what is smaller than normal numbers: the defaults, which other
// libraries change for a thread, its caller's or all that it starts. A result must not depend on who computed it.
class PlainArithmetic {
 public:
  PlainArithmetic();
  ~PlainArithmetic();
  PlainArithmetic(const PlainArithmetic&) = delete;
  PlainArithmetic& operator=(const PlainArithmetic&) = delete;

 private:
  unsigned before_;
};

class Pool {
 public:
  // Called by every thread of a run, the caller as thread 0, in plain arithmetic.
  using Task = void (*)(void* context, int thread_index, int num_threads);

  // num_threads: the caller's included. Throws std::invalid_argument for less than 1 or a thousand and more, and
  // std::runtime_error where the system does not start so many.
  // Threads stay with the process that started them: in one that is forked from it later, nothing runs. All of them are
  // up by then: one that was forked in the middle of a start would have a copy of whatever lock that had taken, as of a
  // memory allocator that takes no care of forks, for ever locked.
  explicit Pool(int num_threads);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  int num_threads() const { return num_threads_; }

  // Every thread executes the task; returns when all have. The task must not throw. Runs come one after another:
  // a second caller waits for the first. Throws as need_own_process.
  void run(Task task, void* context);

  // Throws std::runtime_error in a process that has none of the threads, where a run would wait for them for ever.
  // Whoever takes a lock for a run asks first: another thread may have held it when the process was forked.
  void need_own_process() const;

  // Inside a run, called by every thread alike: none goes on before all have come.
  void barrier();

 private:
  // A word that others wait on: spinning for a while, then asleep in the kernel.
  struct alignas(64) Event {
    std::atomic<uint32_t> value{0};
    std::atomic<uint32_t> sleepers{0};

    uint32_t now() const { return value.load(std::memory_order_acquire); }
    void advance();
    void wait_beyond(uint32_t seen, int num_spins);
  };

  void work(int thread_index);
  void stop();

  const int num_threads_;
  const pid_t owner_;
  std::mutex one_run_;
  Task task_ = nullptr;
  void* context_ = nullptr;
  bool stopping_ = false;
  Event up_;  // as many times as threads have started
  Event start_;
  Event gate_;
  alignas(64) std::atomic<int> arrived_{0};
  std::vector<std::thread> threads_;
};

// Work shared out by a counter: whoever is free takes the next piece. Reset by one thread between two barriers.
struct alignas(64) Counter {
  std::atomic<int64_t> next{0};

  int64_t take(int64_t count) { return next.fetch_add(count, std::memory_order_relaxed); }
  void reset() { next.store(0, std::memory_order_relaxed); }
};

}  // namespace noria
