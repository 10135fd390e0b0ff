// A level before it is trusted: the same products by it and by the kernels that it is compiled from, in AVX2.
#include <cstdint>
#include <cstring>
#include <vector>

#include "draw.h"
#include "levels.h"

namespace noria {
namespace {

constexpr int64_t kColumns = 80;  // a panel and a part of one
constexpr int64_t kMostRows = 35;
// Rows that a tile takes as they come, and more, by several tiles that differ in height.
constexpr int64_t kRowCounts[] = {1, 3, 4, 6, 8, 13, 16, kMostRows};

// A packed weight and memory for it.
struct Drawn {
  Drawn(WeightFormat format, int64_t k, Draw& draw) : view{format, kColumns, k, ColumnOrder::kPlain, false, nullptr} {
    memory.resize(view.num_bytes() + kLineBytes);
    view.data = memory.data() + (kLineBytes - reinterpret_cast<uintptr_t>(memory.data()) % kLineBytes) % kLineBytes;
    for (int64_t row = 0; row < kColumns; ++row) {
      format.is_quantised() ? put_codes(row, draw) : put_floats(row, draw);
    }
  }

  void put_floats(int64_t row, Draw& draw) {
    std::vector<float> values(view.k);
    for (float& value : values) value = draw.number();
    place_floats(view, row, values.data());
  }

  void put_codes(int64_t row, Draw& draw) {
    const WeightFormat& format = view.format;
    RowCodes codes;
    // Now and then at the upper end of the range.
    const uint64_t largest = (uint64_t{1} << format.code_bits) - 1;
    for (int64_t i = 0; i < view.k; ++i) {
      const uint64_t bits = draw.bits();
      codes.codes.push_back(uint8_t(bits % 8 == 0 ? largest : bits >> 32 & largest));
    }
    for (int64_t g = 0; g < view.num_groups(); ++g) codes.scales.push_back(draw.number());
    for (int64_t g = 0; format.has_minima && g < view.num_groups(); ++g) codes.minima.push_back(draw.number());
    place_codes(view, row, codes);
  }

  PackedLinear view;
  std::vector<uint8_t> memory;
};

struct DrawnRows {
  DrawnRows(int64_t k, Draw& draw) : floats(kMostRows * k), bytes(k, RowForm::kBytes), shorts(k, RowForm::kShorts) {
    for (float& value : floats) value = draw.number();
    for (Quants* quants : {&bytes, &shorts}) quantise_rows({floats.data(), k, k}, 0, kMostRows, quants->view);
  }

  Activations as(const QuantRows& quants, int64_t k) const { return {kMostRows, {floats.data(), k, k}, quants}; }

  struct Quants {
    Quants(int64_t k, RowForm form)
        : memory(quant_rows_bytes(kMostRows, k, form) + kLineBytes),
          view(quant_rows_at(memory.data(), kMostRows, k, form)) {}
    std::vector<uint8_t> memory;
    QuantRows view;
  };

  std::vector<float> floats;
  Quants bytes;
  Quants shorts;
};

bool is_same(const GemmTable& a, const GemmTable& b, const PackedLinear& weight, const Activations& x) {
  float found[kMostRows * kPanelColumns], expected[kMostRows * kPanelColumns];
  const PanelKernel kernel = a.panel(weight.format, x.quants.form), other = b.panel(weight.format, x.quants.form);
  if (kernel == nullptr) return true;  // no level has one
  for (int64_t panel = 0; panel < weight.num_panels(); ++panel) {
    for (const int64_t count : kRowCounts) {
      const int64_t begin = kMostRows - count;
      kernel(weight, weight.tile(panel, 0), x, begin, kMostRows, found);
      other(weight, weight.tile(panel, 0), x, begin, kMostRows, expected);
      if (std::memcmp(found, expected, count * kPanelColumns * sizeof(float)) != 0) return false;
    }
  }
  return true;
}

std::vector<WeightFormat> formats_to_prove() {
  std::vector<WeightFormat> formats(3);
  formats[1].kind = WeightKind::kBf16;
  formats[2].kind = WeightKind::kF16;
  for (const int bits : {4, kMostBitsWithBytes, 8}) {
    const WeightKind kind = bits == 4 ? WeightKind::kW4 : WeightKind::kW8;
    for (const int group : {16, 32}) {
      for (const ScaleKind scales : {ScaleKind::kF16, ScaleKind::kF32}) {
        formats.push_back({kind, group, 1 << (bits - 1), false, scales, bits});
        formats.push_back({kind, group, 0, true, scales, bits});
      }
    }
  }
  return formats;
}

}  // namespace

bool is_proven(const Level& level) {
  need_level(level);
  if (level.emulated == nullptr) return true;
  const GemmTable& other = level.emulated->table;
  Draw draw;
  constexpr int64_t kWidth = 96;
  const DrawnRows rows(kWidth, draw);
  for (const WeightFormat& format : formats_to_prove()) {
    const Drawn weight(format, kWidth, draw);
    for (const DrawnRows::Quants* quants : {&rows.bytes, &rows.shorts}) {
      if (!is_same(level.table, other, weight.view, rows.as(quants->view, kWidth))) return false;
    }
  }
  return is_same_attention(*level.attention, *level.emulated->attention);
}

}  // namespace noria
