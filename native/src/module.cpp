#include <nanobind/nanobind.h>
#include <unistd.h>

#include "bindings.h"

noria::InterpreterReleased::~InterpreterReleased() {
  try {
    PyEval_RestoreThread(state_);
  } catch (...) {
    while (true) pause();
  }
}

NB_MODULE(_native, module) {
  // An interpreter that exits while a model is loaded leaves its objects to the system: nothing to report to a user.
  nanobind::set_leak_warnings(false);
  module.doc() = "Threads, packed weights, KV cache and recorded plans of the native backend.";
  noria::bind_gemm(module);
  noria::bind_plan(module);
  noria::bind_sample(module);
  noria::bind_levels(module);
}
