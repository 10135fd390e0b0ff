// Instruction set levels for Python.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "bindings.h"
#include "levels.h"

namespace nb = nanobind;

namespace noria {
namespace {

std::vector<std::string> names_of(const Cpu& cpu) {
  std::vector<std::string> names;
  for (const Level* level : all_levels()) {
    if (cpu.*(level->needs)) names.push_back(level->name);
  }
  return names;
}

}  // namespace

void bind_levels(nb::module_& module) {
  module.def("isa", [] { return std::string(current_level().name); }, "The instruction set level in use.");
  module.def("levels", [] { return names_of(cpu_of(ask_cpu())); },
             "Those that this machine runs, ascending, and then those that are emulated, for tests.");
  module.def(
      "levels_of",
      [](uint32_t leaf1_ecx, uint32_t leaf7_ebx, uint32_t leaf7_ecx, uint32_t leaf7_edx, uint32_t leaf7_1_eax,
         uint64_t xcr0, bool may_use_tiles) {
        return names_of(cpu_of({leaf1_ecx, leaf7_ebx, leaf7_ecx, leaf7_edx, leaf7_1_eax, xcr0, may_use_tiles}));
      },
      nb::kw_only(), nb::arg("leaf1_ecx"), nb::arg("leaf7_ebx"), nb::arg("leaf7_ecx"), nb::arg("leaf7_edx"),
      nb::arg("leaf7_1_eax"), nb::arg("xcr0"), nb::arg("may_use_tiles"),
      "Those of a machine that answers CPUID and XGETBV so, under a system that lets AMX's tiles be used or does not.");
  module.def("use_isa", [](const std::string& name) { use_level(level_of(name)); }, nb::arg("name"),
             "Compute at this level from now on. ValueError where the machine does not run it.");
  module.def("is_proven", [](const std::string& name) { return is_proven(level_of(name)); }, nb::arg("name"),
             "Whether a level that this machine runs multiplies, bit for bit, as it does when emulated.");
}

}  // namespace noria
