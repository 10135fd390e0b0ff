#include "linear_op.h"

#include <algorithm>

namespace noria {
namespace {

// Up to so many rows, every thread makes all of them for itself: less work than waiting for the others' share.
constexpr int64_t kOwnRows = 4;

// Pieces of work that a thread should find at least, so that none waits long for the last of another's.
constexpr int64_t kEnoughPieces = 16;
// Up to so many rows wait for their weights more than they compute, and neighbouring panels are what memory gives
// fastest: of all pieces, threads then take this share without asking.
constexpr int64_t kStreamedRows = 8;
constexpr int64_t kOwnPercent = 75;
// A smaller piece takes its panel apart for too few rows.
constexpr int64_t kFewestRows = 16;

// Rows of a piece. With few panels, such as the 9 of 576 columns, rows are cut smaller.
int64_t piece_rows(int64_t num_rows, int64_t num_panels, int num_threads) {
  const int64_t wanted = (kEnoughPieces * num_threads + num_panels - 1) / num_panels;
  const int64_t rows = (num_rows + wanted - 1) / wanted;
  return std::clamp<int64_t>((rows + 3) / 4 * 4, kFewestRows, kBlockRows);
}

}  // namespace

size_t LinearInput::num_bytes(int64_t num_rows) const {
  if (weight_.format.is_quantised()) return quant_rows_bytes(num_rows, weight_.k, form_);
  return size_t(num_rows) * weight_.k * sizeof(float);
}

void LinearInput::prepare(int64_t num_rows) {
  if (is_ready_as_is()) return;
  if (num_rows > kOwnRows) {
    workspace_.rows.reserve(num_bytes(num_rows));
  } else {
    for (Room& room : workspace_.own_rows) room.reserve(num_bytes(num_rows));
  }
}

Activations LinearInput::make(const Walker& walker, const float* rows, int64_t num_rows) const {
  if (is_ready_as_is()) {
    Activations made;
    made.num_rows = num_rows;
    made.floats = {rows, weight_.k, weight_.k};
    return made;
  }
  if (num_rows <= kOwnRows) {
    const Activations own = at(workspace_.own_rows[walker.index].data(), num_rows);
    convert(rows, 0, num_rows, own);
    return own;
  }
  const Activations shared = at(workspace_.rows.data(), num_rows);
  convert(rows, walker.begin_of(num_rows), walker.end_of(num_rows), shared);
  walker.pool->barrier();
  return shared;
}

Activations LinearInput::at(uint8_t* data, int64_t num_rows) const {
  Activations made;
  made.num_rows = num_rows;
  if (weight_.format.is_quantised()) {
    made.quants = quant_rows_at(data, num_rows, weight_.k, form_);
  } else {
    made.floats = {reinterpret_cast<float*>(data), weight_.k, weight_.k};
  }
  return made;
}

void LinearInput::convert(const float* rows, int64_t begin, int64_t end, const Activations& out) const {
  const FloatRows in{rows, weight_.k, weight_.k};
  if (!weight_.format.is_quantised()) {
    return norm_rows(in, norm_, begin, end, const_cast<float*>(out.floats.data));
  }
  if (norm_.gamma == nullptr) return quantise_rows(in, begin, end, out.quants);
  norm_quantise_rows(in, norm_, begin, end, out.quants);
}

void PanelWork::run(const Walker& walker, const PackedLinear& weight, const Activations& x, const Epilogue& epilogue) {
  const int64_t num_panels = weight.num_panels(), rows = piece_rows(x.num_rows, num_panels, walker.count);
  const int64_t num_blocks = (x.num_rows + rows - 1) / rows, num_pieces = num_panels * num_blocks;
  const auto run_pieces = [&](int64_t begin, int64_t end) {
    for (int64_t piece = begin; piece < end; ++piece) {
      const int64_t row = piece % num_blocks * rows;
      gemm_block(weight, x, piece / num_blocks, row, std::min(row + rows, x.num_rows), epilogue);
    }
  };
  // What is not taken so goes to whoever is there first, in few takes where there are many: a thread that others keep
  // from its processor then leaves more to the rest.
  const int64_t percent = x.num_rows <= kStreamedRows ? kOwnPercent : 0;
  const int64_t own = num_pieces * percent / 100 / walker.count, shared = own * walker.count;
  run_pieces(own * walker.index, own * (walker.index + 1));
  const int64_t step = std::max<int64_t>(1, (num_pieces - shared) / (walker.count * kEnoughPieces));
  for (int64_t begin = next_.take(step); begin < num_pieces - shared; begin = next_.take(step)) {
    run_pieces(shared + begin, shared + std::min(begin + step, num_pieces - shared));
  }
}

}  // namespace noria
