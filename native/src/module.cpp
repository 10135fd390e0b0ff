#include <nanobind/nanobind.h>

#include "bindings.h"

NB_MODULE(_native, module) {
  module.doc() = "Threads, packed weights, KV cache and recorded plans of the native backend.";
  noria::bind_gemm(module);
  noria::bind_plan(module);
}
