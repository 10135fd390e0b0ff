// What the processor and the operating system let a program run.
#pragma once

#include <cstdint>

namespace noria {

// What CPUID and XGETBV answer, as far as levels depend on it.
struct CpuAnswers {
  uint32_t leaf1_ecx = 0;
  uint32_t leaf7_ebx = 0;
  uint32_t leaf7_ecx = 0;
  uint32_t leaf7_edx = 0;
  uint32_t leaf7_1_eax = 0;  // subleaf 1
  uint64_t xcr0 = 0;         // registers that the system saves; 0 where it saves none
  bool may_use_tiles = false;
};

// A set of instructions counts only where the registers that it works on are saved.
struct Cpu {
  bool has_avx2 = false;         // and FMA and F16C: x86-64-v3's vectors
  bool has_avx2_vnni = false;    // and AVX-VNNI
  bool has_avx512_vnni = false;  // and AVX-512 F, BW, VL, DQ and VNNI
  bool has_avx512_amx = false;   // and AMX-TILE and AMX-INT8
};

// Where the processor has AMX, asks the system to let this process use its tiles: it saves them for those alone that
// ask. It may be asked again.
CpuAnswers ask_cpu();
Cpu cpu_of(const CpuAnswers& answers);

}  // namespace noria
