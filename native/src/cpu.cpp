#include "cpu.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace noria {
namespace {

bool has_all(uint64_t found, uint64_t wanted) { return (found & wanted) == wanted; }

constexpr uint32_t bit(int index) { return uint32_t{1} << index; }

// Bits by Intel's manual, volume 2, CPUID, and volume 1, section 13.3.
constexpr uint32_t kXgetbv = bit(27);                          // leaf 1, ecx: the system has switched it on
constexpr uint32_t kLeaf1Avx2 = bit(12) | bit(28) | bit(29);   // FMA, AVX, F16C
constexpr uint32_t kLeaf7Avx2 = bit(5);
constexpr uint32_t kLeaf7Avx512 = bit(16) | bit(17) | bit(30) | bit(31);  // F, DQ, BW, VL
constexpr uint32_t kLeaf7Avx512Vnni = bit(11);                            // ecx
constexpr uint32_t kLeaf7Amx = bit(24) | bit(25);                         // edx: TILE, INT8
constexpr uint32_t kLeaf71AvxVnni = bit(4);
constexpr uint64_t kYmmState = bit(1) | bit(2);
constexpr uint64_t kZmmState = kYmmState | bit(5) | bit(6) | bit(7);  // masks, upper halves, registers 16 to 31
constexpr uint64_t kTileState = bit(17) | bit(18);            // their form, their data

// By Linux's documentation, arch/x86/xstate.rst. Threads that are there already may use them too.
bool ask_for_tiles() {
  constexpr int kArchReqXcompPerm = 0x1023, kXfeatureXtiledata = 18;
  return syscall(SYS_arch_prctl, kArchReqXcompPerm, kXfeatureXtiledata) == 0;
}

uint64_t read_xcr0() {
  uint32_t low, high;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t{high} << 32 | low;
}

}  // namespace

CpuAnswers ask_cpu() {
  CpuAnswers answers;
  uint32_t eax, ebx, ecx, edx;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0) return answers;
  answers.leaf1_ecx = ecx;
  if (has_all(ecx, kXgetbv)) answers.xcr0 = read_xcr0();
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return answers;
  answers.leaf7_ebx = ebx;
  answers.leaf7_ecx = ecx;
  answers.leaf7_edx = edx;
  const uint32_t last_subleaf = eax;
  if (last_subleaf >= 1 && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0) answers.leaf7_1_eax = eax;
  if (has_all(answers.leaf7_edx, kLeaf7Amx)) answers.may_use_tiles = ask_for_tiles();
  return answers;
}

Cpu cpu_of(const CpuAnswers& answers) {
  Cpu cpu;
  cpu.has_avx2 = has_all(answers.leaf1_ecx, kXgetbv | kLeaf1Avx2) && has_all(answers.leaf7_ebx, kLeaf7Avx2) &&
                 has_all(answers.xcr0, kYmmState);
  cpu.has_avx2_vnni = cpu.has_avx2 && has_all(answers.leaf7_1_eax, kLeaf71AvxVnni);
  cpu.has_avx512_vnni = cpu.has_avx2 && has_all(answers.leaf7_ebx, kLeaf7Avx512) &&
                        has_all(answers.leaf7_ecx, kLeaf7Avx512Vnni) && has_all(answers.xcr0, kZmmState);
  cpu.has_avx512_amx = cpu.has_avx512_vnni && has_all(answers.leaf7_edx, kLeaf7Amx) &&
                       has_all(answers.xcr0, kTileState) && answers.may_use_tiles;
  return cpu;
}

}  // namespace noria
