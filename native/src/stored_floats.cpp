#include "stored_floats.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <vector>

#include "quantise_weights.h"

namespace noria {
namespace {

// Rows that a thread takes at once: those of one tile, whose lines they share.
constexpr int64_t kRunRows = kTileColumns;
constexpr float kLargestBf16 = 0x1.fep127f;

bool is_own_kind(FloatKind kind, WeightKind weight) {
  return (kind == FloatKind::kF16 && weight == WeightKind::kF16) ||
         (kind == FloatKind::kBf16 && weight == WeightKind::kBf16);
}

// What a weight can hold. The scales and minima of quantised ones are halves.
float largest_of(WeightKind kind) {
  if (kind == WeightKind::kF32) return std::numeric_limits<float>::max();
  return kind == WeightKind::kBf16 ? kLargestBf16 : kLargestHalf;
}

// A thread's own room. All of it is taken at first: threads of a pool must not throw.
struct Scratch {
  explicit Scratch(int64_t k) : wide(k) {
    codes.codes.resize(k);
    codes.scales.resize(k / kWeightGroup);
    codes.minima.resize(k / kWeightGroup);
  }

  std::vector<float> wide;
  RowCodes codes;
};

class Putting {
 public:
  Putting(const PackedLinear& weight, int64_t first, const StoredRows& rows, int num_threads)
      : weight_(weight),
        first_(first),
        rows_(rows),
        largest_(largest_of(weight.format.kind)),
        first_bad_(rows.num_rows),
        scratch_(num_threads, Scratch(weight.k)) {}

  // By every thread of a pool.
  void run(int thread_index) {
    for (int64_t begin = next_.take(kRunRows); begin < rows_.num_rows; begin = next_.take(kRunRows)) {
      const int64_t end = std::min(begin + kRunRows, rows_.num_rows);
      for (int64_t row = begin; row < end; ++row) put(row, scratch_[thread_index]);
    }
  }

  void throw_if_bad() const {
    const int64_t row = first_bad_.load();
    if (row == rows_.num_rows) return;
    std::vector<float> wide(weight_.k);
    widen_row_avx2(rows_.kind, rows_.row(row, weight_.k), weight_.k, wide.data());
    const int64_t at = first_beyond_avx2(wide.data(), weight_.k, largest_);
    std::ostringstream text;
    text << "number " << at << " of row " << row << " is " << wide[at] << "; only finite numbers up to "
         << largest_ << " can be stored so";
    throw std::invalid_argument(text.str());
  }

 private:
  void put(int64_t row, Scratch& own) {
    std::vector<float>& wide = own.wide;
    const WeightKind kind = weight_.format.kind;
    const uint8_t* stored = rows_.row(row, weight_.k);
    widen_row_avx2(rows_.kind, stored, weight_.k, wide.data());
    if (first_beyond_avx2(wide.data(), weight_.k, largest_) < weight_.k) return note_bad(row);
    if (is_own_kind(rows_.kind, kind)) return place_halves(weight_, first_ + row, stored);
    if (!weight_.format.is_quantised()) return place_floats(weight_, first_ + row, wide.data());
    (kind == WeightKind::kW8 ? quantise_w8_row_avx2 : quantise_w4_row_avx2)(wide.data(), weight_.k, own.codes);
    place_codes(weight_, first_ + row, own.codes);
  }

  void note_bad(int64_t row) {
    int64_t seen = first_bad_.load();
    while (row < seen && !first_bad_.compare_exchange_weak(seen, row)) {
    }
  }

  const PackedLinear& weight_;
  const int64_t first_;
  const StoredRows& rows_;
  const float largest_;
  Counter next_;
  std::atomic<int64_t> first_bad_;
  std::vector<Scratch> scratch_;
};

}  // namespace

FloatKind float_kind(const std::string& name) {
  if (name == "F32") return FloatKind::kF32;
  if (name == "F16") return FloatKind::kF16;
  if (name == "BF16") return FloatKind::kBf16;
  throw std::invalid_argument("floating point numbers are F32, F16 or BF16, not " + name);
}

void put_stored_rows(Pool& pool, const PackedLinear& weight, int64_t first, const StoredRows& rows) {
  Putting putting(weight, first, rows, pool.num_threads());
  pool.run([](void* context, int index, int) { static_cast<Putting*>(context)->run(index); }, &putting);
  putting.throw_if_bad();
}

}  // namespace noria
