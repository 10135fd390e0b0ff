// Instruction set levels: which there are, which this machine runs, and which is in use.
#pragma once

#include <string>
#include <vector>

#include "attention.h"
#include "cpu.h"
#include "gemm_peaks.h"
#include "gemm_table.h"

namespace noria {

struct Level {
  const char* name;
  bool Cpu::* needs;
  const Level* emulated;  // the same kernels in AVX2, but for the instructions themselves; null where it is one
  GemmTable table;
  const AttentionTable* attention;
  const Peaks* peaks;
};

// Ascending, those that are emulated last.
const std::vector<const Level*>& all_levels();

// Throws std::invalid_argument for a name that is none of them.
const Level& level_of(const std::string& name);

const Level& current_level();

// Every later product is the level's, what plans recorded earlier included. Throws std::invalid_argument where the
// machine does not run it.
void use_level(const Level& level);
// The same refusal alone.
void need_level(const Level& level);

// Its products of seeded operands, in all formats, forms of rows and numbers of rows, and attention's are the emulated
// ones' to the bit. Takes about ten milliseconds. Throws std::invalid_argument where the machine does not run it.
bool is_proven(const Level& level);

}  // namespace noria
