// What the bindings of products share.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>

#include "arena.h"
#include "gemm.h"

namespace noria {

using Matrix = nanobind::ndarray<const float, nanobind::ndim<2>, nanobind::c_contig, nanobind::device::cpu>;
using MutableMatrix = nanobind::ndarray<float, nanobind::ndim<2>, nanobind::c_contig, nanobind::device::cpu>;
using Shorts = nanobind::ndarray<const int16_t, nanobind::ndim<2>, nanobind::c_contig, nanobind::device::cpu>;
using Bytes = nanobind::ndarray<const int8_t, nanobind::ndim<2>, nanobind::c_contig, nanobind::device::cpu>;

// Quantised rows with their memory.
struct QuantisedRows {
  QuantisedRows(int64_t num_rows, int64_t k, RowForm form) : num_rows(num_rows) {
    room.reserve(quant_rows_bytes(num_rows, k, form));
    view = quant_rows_at(room.data(), num_rows, k, form);
  }

  const int64_t num_rows;
  QuantRows view;
  Room room;
};

inline FloatRows rows_of(const Matrix& x) {
  return {x.data(), static_cast<int64_t>(x.shape(1)), static_cast<int64_t>(x.shape(1))};
}

inline Activations activations_of(const Matrix& x) {
  Activations rows;
  rows.num_rows = x.shape(0);
  rows.floats = rows_of(x);
  return rows;
}

inline Activations activations_of(const QuantisedRows& x) {
  Activations rows;
  rows.num_rows = x.num_rows;
  rows.quants = x.view;
  return rows;
}

// A fresh array of Python's, [num_rows, width].
template <typename T>
nanobind::ndarray<nanobind::numpy, T, nanobind::ndim<2>> make_array(int64_t num_rows, int64_t width) {
  const size_t num_bytes = array_bytes(num_rows, width, sizeof(T));
  T* data = new (std::nothrow) T[num_rows * width];
  if (data == nullptr) throw OutOfMemory(num_bytes);
  nanobind::capsule owner(data, [](void* at) noexcept { delete[] static_cast<T*>(at); });
  return {data, {static_cast<size_t>(num_rows), static_cast<size_t>(width)}, owner};
}

// Products and reads by the clock, for benchmarks.
void bind_gemm_timing(nanobind::module_& module);

}  // namespace noria
