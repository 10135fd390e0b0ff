// Parts of the extension module, one function for each file that binds some.
#pragma once

#include <nanobind/nanobind.h>

namespace noria {

void bind_gemm(nanobind::module_& module);  // packed weights and their products
void bind_plan(nanobind::module_& module);  // threads, cache and recorded plans
void bind_sample(nanobind::module_& module);  // the choice of tokens
void bind_levels(nanobind::module_& module);  // instruction set levels

}  // namespace noria
