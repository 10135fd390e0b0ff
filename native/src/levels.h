// Instruction set levels: which there are, which this machine runs, and which is in use.
#pragma once

#include <string>
#include <vector>

#include "cpu.h"
#include "gemm_table.h"

namespace noria {

struct Level {
  const char* name;
  bool Cpu::* needs;
  const Level* emulated;  // the same kernels in AVX2, but for the instructions themselves; null where it is one
  GemmTable table;
};

// Ascending, those that are emulated last.
const std::vector<const Level*>& all_levels();

// Throws std::invalid_argument for a name that is none of them.
const Level& level_of(const std::string& name);

const Level& current_level();

// Every later product is the level's. Throws std::invalid_argument where the machine does not run it, or where a plan
// was recorded at another level and lives.
void use_level(const Level& level);

// Its products of seeded operands, in all formats and forms of rows and in ragged shapes, are the emulated ones' to the
// bit. Takes about a millisecond.
bool is_proven(const Level& level);

// Counts a plan as long as it lives: its rows have the forms of the level that it was recorded at.
class LevelHold {
 public:
  LevelHold();
  ~LevelHold();
  LevelHold(const LevelHold&) = delete;
  LevelHold& operator=(const LevelHold&) = delete;
};

}  // namespace noria
