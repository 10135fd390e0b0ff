#include "weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>

namespace noria {
namespace {

// Where the numbers of one group and column lie.
struct GroupView {
  uint8_t* codes;   // the column's 4 bytes in the group's first line
  uint8_t* scale;
  uint8_t* minimum;
};

GroupView group_of(const PackedLinear& weight, int64_t column, int64_t group) {
  const WeightFormat& format = weight.format;
  const int lane = column % kTileColumns;
  uint8_t* base = weight.data + column / kTileColumns * weight.tile_bytes() + group * format.group_bytes();
  uint8_t* scales = base + format.group_code_bytes();
  const int scale_bytes = format.scale_bytes();
  return {base + lane * 4, scales + lane * scale_bytes, scales + (kTileColumns + lane) * scale_bytes};
}

void store_scale(ScaleKind kind, float value, uint8_t* at) {
  if (kind == ScaleKind::kF32) {
    std::memcpy(at, &value, sizeof value);
  } else {
    const uint16_t bits = to_f16(value);
    std::memcpy(at, &bits, sizeof bits);
  }
}

float load_scale(ScaleKind kind, const uint8_t* at) {
  float value;
  if (kind == ScaleKind::kF32) {
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  return from_f16(bits);
}

void store_group(WeightKind kind, int group, const uint8_t* codes, uint8_t* at) {
  if (kind == WeightKind::kW8) {
    for (int i = 0; i < group; i += 4) std::memcpy(at + i / 4 * kLineBytes, codes + i, 4);
    return;
  }
  for (int i = 0; i < group; i += 8) {
    for (int j = 0; j < 4; ++j) at[i / 8 * kLineBytes + j] = codes[i + j] | codes[i + 4 + j] << 4;
  }
}

void load_group(WeightKind kind, int group, const uint8_t* at, uint8_t* codes) {
  if (kind == WeightKind::kW8) {
    for (int i = 0; i < group; i += 4) std::memcpy(codes + i, at + i / 4 * kLineBytes, 4);
    return;
  }
  for (int i = 0; i < group; i += 8) {
    for (int j = 0; j < 4; ++j) {
      const uint8_t packed = at[i / 8 * kLineBytes + j];
      codes[i + j] = packed & 0x0f;
      codes[i + 4 + j] = packed >> 4;
    }
  }
}

// Where the numbers of one row lie that are not quantised.
struct FloatColumn {
  WeightKind kind;
  uint8_t* tile;
  int64_t lane;

  FloatColumn(const PackedLinear& weight, int64_t row) : kind(weight.format.kind) {
    const int64_t column = weight.column_of(row);
    tile = weight.data + column / kTileColumns * weight.tile_bytes();
    lane = column % kTileColumns;
  }

  uint8_t* f32(int64_t i) const { return tile + i * kLineBytes + lane * 4; }
  uint8_t* half(int64_t i) const {
    return kind == WeightKind::kF16 ? tile + (i * kTileColumns + lane) * 2
                                    : tile + i / 2 * kLineBytes + lane * 4 + i % 2 * 2;
  }
};

void refuse(bool when, const std::string& what) {
  if (when) throw std::invalid_argument(what);
}

// A damaged file's: one such number would spoil every answer. A model has millions of groups, so the message is made
// for a bad one alone.
void refuse_infinite(const char* what, int64_t row, const std::vector<float>& numbers) {
  const auto bad = std::find_if(numbers.begin(), numbers.end(), [](float x) { return !std::isfinite(x); });
  if (bad == numbers.end()) return;
  throw std::invalid_argument(std::string("the ") + what + " of group " + std::to_string(bad - numbers.begin()) +
                              " in row " + std::to_string(row) + " is " + std::to_string(*bad));
}

constexpr double kMostWeightBytes = 0x1p62;

bool is_power_of_two(int x) { return x > 0 && (x & (x - 1)) == 0; }

}  // namespace

void PackedLinear::check() const {
  const std::string shape = "a weight of [" + std::to_string(n) + ", " + std::to_string(k) + "]";
  refuse(n < 1 || k < 1, shape + " holds nothing");
  // As doubles they cannot overflow: no kind takes more than 4 bytes a number, rows filled up to whole panels.
  refuse(4 * (double(n) + kPanelColumns) * (double(k) + 1) > kMostWeightBytes, shape + " is beyond any memory");
  refuse(order == ColumnOrder::kGlu && n % 2 != 0, shape + " is not a gate and an up of the same height");
  if (!format.is_quantised()) return;
  refuse(k % 32 != 0, shape + " cannot be quantised: its width is no multiple of 32");
  refuse(format.group != 16 && format.group != 32,
         "quantised groups have 16 or 32 numbers, not " + std::to_string(format.group));
  const bool is_w4 = format.kind == WeightKind::kW4;
  refuse(is_w4 ? format.code_bits != 4 : format.code_bits < 1 || format.code_bits > 8,
         "codes of " + std::to_string(format.code_bits) + " bits are not for weights of " + (is_w4 ? "4" : "8"));
  refuse(format.has_minima ? format.zero != 0 : !is_power_of_two(format.zero) || format.zero > 128,
         "the zero of a quantised format is a power of two up to 128, or 0 beside minima, not " +
             std::to_string(format.zero));
}

size_t PackedLinear::tile_bytes() const {
  switch (format.kind) {
    case WeightKind::kF32: return k * kLineBytes;
    case WeightKind::kBf16:
    case WeightKind::kF16: return (k + 1) / 2 * kLineBytes;
    default: return num_groups() * format.group_bytes();
  }
}

size_t PackedLinear::num_bytes() const {
  const size_t bias_bytes = has_bias ? num_panels() * kPanelColumns * sizeof(float) : 0;
  return num_panels() * panel_bytes() + bias_bytes;
}

int64_t PackedLinear::column_of(int64_t row) const {
  if (order == ColumnOrder::kPlain) return row;
  const int64_t half = n / 2;
  const int64_t output = row % half;
  return output / kGluColumns * kPanelColumns + output % kGluColumns + (row < half ? 0 : kGluColumns);
}

void place_floats(const PackedLinear& weight, int64_t row, const float* values) {
  const FloatColumn column(weight, row);
  if (column.kind == WeightKind::kF32) {
    for (int64_t i = 0; i < weight.k; ++i) std::memcpy(column.f32(i), values + i, 4);
    return;
  }
  const auto rounded = column.kind == WeightKind::kF16 ? to_f16 : to_bf16;
  for (int64_t i = 0; i < weight.k; ++i) {
    const uint16_t bits = rounded(values[i]);
    std::memcpy(column.half(i), &bits, 2);
  }
}

void place_halves(const PackedLinear& weight, int64_t row, const uint8_t* bits) {
  const FloatColumn column(weight, row);
  for (int64_t i = 0; i < weight.k; ++i) std::memcpy(column.half(i), bits + 2 * i, 2);
}

void check_codes(const WeightFormat& format, int64_t row, const RowCodes& codes) {
  uint8_t seen = 0;
  for (const uint8_t code : codes.codes) seen |= code;
  if (seen >> format.code_bits != 0) {
    throw std::invalid_argument("a code has more than the format's " + std::to_string(format.code_bits) + " bits");
  }
  refuse_infinite("scale", row, codes.scales);
  refuse_infinite("minimum", row, codes.minima);
}

void place_codes(const PackedLinear& weight, int64_t row, const RowCodes& codes) {
  const WeightFormat& format = weight.format;
  const int64_t column = weight.column_of(row);
  for (int64_t g = 0; g < weight.num_groups(); ++g) {
    const GroupView group = group_of(weight, column, g);
    store_group(format.kind, format.group, codes.codes.data() + g * format.group, group.codes);
    store_scale(format.scales, codes.scales[g], group.scale);
    if (format.has_minima) store_scale(format.scales, codes.minima[g], group.minimum);
  }
}

void place_bias(const PackedLinear& weight, const float* values) {
  for (int64_t row = 0; row < weight.n; ++row) weight.bias()[weight.column_of(row)] = values[row];
}

void read_codes(const PackedLinear& weight, int64_t row, RowCodes& out) {
  const WeightFormat& format = weight.format;
  out.codes.resize(weight.k);
  out.scales.resize(weight.num_groups());
  out.minima.resize(format.has_minima ? weight.num_groups() : 0);
  const int64_t column = weight.column_of(row);
  for (int64_t g = 0; g < weight.num_groups(); ++g) {
    const GroupView group = group_of(weight, column, g);
    load_group(format.kind, format.group, group.codes, out.codes.data() + g * format.group);
    out.scales[g] = load_scale(format.scales, group.scale);
    if (format.has_minima) out.minima[g] = load_scale(format.scales, group.minimum);
  }
}

namespace {

// Takes no memory: a plan's threads, which must not throw, look tokens up with it.
void read_quantised(const PackedLinear& weight, int64_t column, float* out) {
  const WeightFormat& format = weight.format;
  uint8_t codes[32];
  for (int64_t g = 0; g < weight.num_groups(); ++g, out += format.group) {
    const GroupView group = group_of(weight, column, g);
    load_group(format.kind, format.group, group.codes, codes);
    const float scale = load_scale(format.scales, group.scale);
    const float minimum = format.has_minima ? load_scale(format.scales, group.minimum) : 0;
    for (int i = 0; i < format.group; ++i) {
      out[i] = scale * float(codes[i] - format.zero);
      if (format.has_minima) out[i] += minimum;
    }
  }
}

}  // namespace

void read_floats(const PackedLinear& weight, int64_t row, float* out) {
  const WeightFormat& format = weight.format;
  if (format.is_quantised()) return read_quantised(weight, weight.column_of(row), out);
  const FloatColumn column(weight, row);
  if (column.kind == WeightKind::kF32) {
    for (int64_t i = 0; i < weight.k; ++i) std::memcpy(out + i, column.f32(i), 4);
    return;
  }
  const auto widened = column.kind == WeightKind::kF16 ? from_f16 : from_bf16;
  for (int64_t i = 0; i < weight.k; ++i) {
    uint16_t bits;
    std::memcpy(&bits, column.half(i), 2);
    out[i] = widened(bits);
  }
}

uint16_t to_bf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  if (std::isnan(value)) return uint16_t(bits >> 16 | 0x40);
  return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float from_bf16(uint16_t bits) {
  const uint32_t wide = uint32_t(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

uint16_t to_f16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  const uint16_t sign = bits >> 16 & 0x8000;
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return uint16_t(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));  // NaN
  if (magnitude >= 0x477ff000) return uint16_t(sign | 0x7c00);  // rounds beyond the largest number
  if (magnitude < 0x38800000) {
    // Below the smallest normal number steps are 2^-24: adding 0.5 rounds to them.
    float small = std::fabs(value) + 0.5f;
    uint32_t rounded;
    std::memcpy(&rounded, &small, sizeof rounded);
    return uint16_t(sign | (rounded - 0x3f000000));
  }
  const uint32_t rebiased = magnitude - 0x38000000;
  return uint16_t(sign | (rebiased + 0xfff + (rebiased >> 13 & 1)) >> 13);
}

float from_f16(uint16_t bits) {
  const uint32_t sign = uint32_t(bits & 0x8000) << 16;
  const uint32_t magnitude = bits & 0x7fff;
  if (magnitude < 0x400) {
    const float value = float(magnitude) * 0x1p-24f;
    return sign ? -value : value;
  }
  const uint32_t wide = sign | (magnitude >= 0x7c00 ? 0x7f800000 | (magnitude & 0x3ff) << 13
                                                    : (magnitude << 13) + 0x38000000);
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

}  // namespace noria
