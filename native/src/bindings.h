// Parts of the extension module, one function for each file that binds some.
#pragma once

#include <nanobind/nanobind.h>

namespace noria {

// Lets the interpreter go on until it goes out of scope. A thread that comes back to an interpreter that has begun to
// exit is unwound by it, as pthread_exit does: through functions that must not throw, which would end the process
// with a signal. It waits here instead, for the end that has begun.
class InterpreterReleased {
 public:
  InterpreterReleased() : state_(PyEval_SaveThread()) {}
  ~InterpreterReleased();
  InterpreterReleased(const InterpreterReleased&) = delete;
  InterpreterReleased& operator=(const InterpreterReleased&) = delete;

 private:
  PyThreadState* state_;
};

void bind_gemm(nanobind::module_& module);  // packed weights and their products
void bind_plan(nanobind::module_& module);  // threads, cache and recorded plans
void bind_sample(nanobind::module_& module);  // the choice of tokens
void bind_levels(nanobind::module_& module);  // instruction set levels

}  // namespace noria
