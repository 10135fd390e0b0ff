#include "levels.h"

#include <atomic>
#include <stdexcept>

namespace noria {
namespace {

const Level kEmulatedVnni = {
    "emulated_vnni",
    &Cpu::has_avx2,
    nullptr,
    {f32_panel_avx2, bf16_panel_avx2, f16_panel_avx2, w8_panel_emulated_vnni, w8_shorts_panel_emulated_vnni,
     w4_panel_emulated_vnni, w4_shorts_panel_emulated_vnni, finish_avx2, norm_rows_avx2, quantise_rows_avx2,
     norm_quantise_rows_avx2},
    &kAttentionAvx2,
    &kPeaksAvx2,
};

const Level kEmulated512 = {
    "emulated_512",
    &Cpu::has_avx2,
    nullptr,
    {f32_panel_emulated_512, bf16_panel_emulated_512, f16_panel_emulated_512, w8_panel_emulated_512,
     w8_shorts_panel_emulated_512, w4_panel_emulated_512, w4_shorts_panel_emulated_512, finish_avx2,
     norm_rows_avx2, quantise_rows_avx2, norm_quantise_rows_avx2},
    &kAttentionEmulated512,
    &kPeaksAvx2,
};

const Level kEmulatedAmx = {
    "emulated_amx",
    &Cpu::has_avx2,
    nullptr,
    {f32_panel_emulated_512, bf16_panel_emulated_512, f16_panel_emulated_512, w8_panel_emulated_amx,
     w8_shorts_panel_emulated_512, w4_panel_emulated_amx, w4_shorts_panel_emulated_512, finish_avx2,
     norm_rows_avx2, quantise_rows_avx2, norm_quantise_rows_avx2},
    &kAttentionEmulated512,
    &kPeaksAvx2,
};

const Level kAvx2 = {
    "avx2",
    &Cpu::has_avx2,
    nullptr,
    {f32_panel_avx2, bf16_panel_avx2, f16_panel_avx2, w8_few_panel_avx2, w8_shorts_panel_avx2, w4_panel_avx2,
     w4_shorts_panel_avx2, finish_avx2, norm_rows_avx2, quantise_rows_avx2, norm_quantise_rows_avx2},
    &kAttentionAvx2,
    &kPeaksAvx2,
};

const Level kAvx2Vnni = {
    "avx2_vnni",
    &Cpu::has_avx2_vnni,
    &kEmulatedVnni,
    {f32_panel_avx2, bf16_panel_avx2, f16_panel_avx2, w8_panel_avx2_vnni, w8_shorts_panel_avx2_vnni,
     w4_panel_avx2_vnni, w4_shorts_panel_avx2_vnni, finish_avx2, norm_rows_avx2, quantise_rows_avx2,
     norm_quantise_rows_avx2},
    &kAttentionAvx2,
    &kPeaksAvx2Vnni,
};

const Level kAvx512Vnni = {
    "avx512_vnni",
    &Cpu::has_avx512_vnni,
    &kEmulated512,
    {f32_panel_avx512_vnni, bf16_panel_avx512_vnni, f16_panel_avx512_vnni, w8_panel_avx512_vnni,
     w8_shorts_panel_avx512_vnni, w4_panel_avx512_vnni, w4_shorts_panel_avx512_vnni, finish_avx2, norm_rows_avx2,
     quantise_rows_avx2, norm_quantise_rows_avx2},
    &kAttentionAvx512,
    &kPeaksAvx512Vnni,
};

const Level kAvx512Amx = {
    "avx512_amx",
    &Cpu::has_avx512_amx,
    &kEmulatedAmx,
    {f32_panel_avx512_vnni, bf16_panel_avx512_vnni, f16_panel_avx512_vnni, w8_panel_avx512_amx,
     w8_shorts_panel_avx512_vnni, w4_panel_avx512_amx, w4_shorts_panel_avx512_vnni, finish_avx2, norm_rows_avx2,
     quantise_rows_avx2, norm_quantise_rows_avx2},
    &kAttentionAvx512,
    &kPeaksAvx512Amx,
};

std::atomic<const Level*> level_in_use{&kAvx2};

}  // namespace

const std::vector<const Level*>& all_levels() {
  static const std::vector<const Level*> levels = {&kAvx2,         &kAvx2Vnni,    &kAvx512Vnni, &kAvx512Amx,
                                                   &kEmulatedVnni, &kEmulated512, &kEmulatedAmx};
  return levels;
}

const Level& level_of(const std::string& name) {
  std::string known;
  for (const Level* level : all_levels()) {
    if (name == level->name) return *level;
    known += known.empty() ? level->name : std::string(", ") + level->name;
  }
  throw std::invalid_argument("no instruction set level '" + name + "'; there are " + known);
}

const Level& current_level() { return *level_in_use.load(std::memory_order_relaxed); }

const GemmTable& gemm_table() { return current_level().table; }

const AttentionTable& attention_table() { return *current_level().attention; }

Peak peak_of(const std::string& kind) {
  const Peaks& peaks = *current_level().peaks;
  if (kind == "float32") return peaks.float32;
  if (kind == "w8") return peaks.w8;
  if (kind == "w4") return peaks.w4;
  throw std::invalid_argument("peaks are of float32, w8 and w4, not " + kind);
}

void need_level(const Level& level) {
  if (cpu_of(ask_cpu()).*level.needs) return;
  throw std::invalid_argument(std::string("this machine does not run ") + level.name);
}

void use_level(const Level& level) {
  need_level(level);
  level_in_use.store(&level, std::memory_order_relaxed);
}

}  // namespace noria
