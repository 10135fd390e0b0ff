// Packed weights: the one layout that every kernel level reads, and how rows get into it and out again.
//
// A panel is 64 output columns: what a thread takes at once. It is 4 tiles of 16 columns, one after another, and
// k runs inside the tile, so that a kernel reads one sequential stream. A line is 64 bytes, 16 columns x 4 bytes:
//
//   F32   [k][16] float
//   BF16  [k / 2][16][2] bfloat16, the even k first; an odd k is filled up with zeros
//   F16   [k][16] half; an odd k is filled up to a whole line
//   W8    [group][ [g / 4][16][4] codes | [16] scales | [16] minima ]       byte i of a column is k = 4 line + i
//   W4    [group][ [g / 8][16][4] codes | [16] scales | [16] minima ]       low nibble of byte i is k = 8 line + i,
//                                                                          high nibble is k = 8 line + 4 + i
//
// Codes are unsigned: w = scale * (code - zero), or scale * code + minimum where the format has minima.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace noria {

constexpr int kPanelColumns = 64;
constexpr int kTileColumns = 16;
constexpr int kPanelTiles = kPanelColumns / kTileColumns;
constexpr int kLineBytes = 64;
constexpr int kGluColumns = kPanelColumns / 2;  // gate columns of a panel, and as many of up

enum class WeightKind { kF32, kBf16, kF16, kW8, kW4 };
enum class ScaleKind { kF16, kF32 };

// Which output row of the matrix lies in which column of the panels.
enum class ColumnOrder {
  kPlain,  // as they come
  kGlu,    // the matrix is gate over up; a panel holds 32 rows of gate, then the same 32 of up
};

struct WeightFormat {
  WeightKind kind = WeightKind::kF32;
  // Of quantised kinds only:
  int group = 0;  // 16 or 32 numbers along k
  int zero = 0;   // a power of two, or 0 where the format has minima
  bool has_minima = false;
  ScaleKind scales = ScaleKind::kF16;
  int code_bits = 8;  // codes are below 2^code_bits; of W4 4, of W8 up to 8, and few bits make it faster

  bool is_quantised() const { return kind == WeightKind::kW8 || kind == WeightKind::kW4; }
  int scale_bytes() const { return scales == ScaleKind::kF16 ? 2 : 4; }
  int group_code_bytes() const { return group * kTileColumns / (kind == WeightKind::kW4 ? 2 : 1); }
  // Codes, scales and minima of 16 columns.
  int group_bytes() const { return group_code_bytes() + kTileColumns * scale_bytes() * (has_minima ? 2 : 1); }
};

// One row of a quantised matrix before it is packed: codes [k], scales and minima [k / group].
struct RowCodes {
  std::vector<uint8_t> codes;
  std::vector<float> scales;
  std::vector<float> minima;
};

// A view of packed memory that somebody else owns: num_bytes() bytes at `data`, 64-byte aligned, zero at first.
struct PackedLinear {
  WeightFormat format;
  int64_t n = 0;  // output rows of the matrix; with kGlu 2 * F
  int64_t k = 0;
  ColumnOrder order = ColumnOrder::kPlain;
  bool has_bias = false;
  uint8_t* data = nullptr;

  // Throws std::invalid_argument with the numbers for what cannot be packed.
  void check() const;

  // Columns that a gemm writes: n, or F with kGlu.
  int64_t num_outputs() const { return order == ColumnOrder::kGlu ? n / 2 : n; }
  int64_t panel_outputs() const { return order == ColumnOrder::kGlu ? kGluColumns : kPanelColumns; }
  int64_t num_panels() const { return (num_outputs() + panel_outputs() - 1) / panel_outputs(); }
  int64_t num_groups() const { return k / format.group; }
  size_t tile_bytes() const;
  size_t panel_bytes() const { return tile_bytes() * kPanelTiles; }
  size_t num_bytes() const;

  uint8_t* tile(int64_t panel, int index) const { return data + panel * panel_bytes() + index * tile_bytes(); }
  // [num_panels * 64] in the columns' order.
  float* bias() const { return reinterpret_cast<float*>(data + num_panels() * panel_bytes()); }
  // The column, counted over all panels, of an output row.
  int64_t column_of(int64_t row) const;
};

// F32, BF16 and F16 (rounded to nearest even). values: [k].
void place_floats(const PackedLinear& weight, int64_t row, const float* values);

// BF16 and F16, as they are. bits: [k] of 2 bytes, at any address.
void place_halves(const PackedLinear& weight, int64_t row, const uint8_t* bits);

// Throws std::invalid_argument for a code that does not fit and for a scale or minimum that is not finite. row: which
// one it is of those that came together, for the message.
void check_codes(const WeightFormat& format, int64_t row, const RowCodes& codes);

// W8 and W4, of codes that check_codes has passed or that were made here. Throws nothing.
void place_codes(const PackedLinear& weight, int64_t row, const RowCodes& codes);

// values: [n].
void place_bias(const PackedLinear& weight, const float* values);

// The exact inverses. read_floats serves every kind: quantised numbers as scale * (code - zero), or scale * code
// rounded and then the minimum added, which is how the file formats define them. out: [k].
void read_floats(const PackedLinear& weight, int64_t row, float* out);
void read_codes(const PackedLinear& weight, int64_t row, RowCodes& out);

uint16_t to_bf16(float value);
float from_bf16(uint16_t bits);
uint16_t to_f16(float value);
float from_f16(uint16_t bits);

}  // namespace noria
