// Packed weights and their products for Python. Arrays are checked here; nothing below looks at sizes again.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include "bind_gemm.h"
#include "bindings.h"
#include "gemm.h"
#include "pool.h"
#include "quantise_weights.h"
#include "stored_floats.h"
#include "unpack.h"
#include "weights_owner.h"

namespace nb = nanobind;

namespace noria {
namespace {

using Vector = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using ByteMatrix = nb::ndarray<const uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

void expect(int64_t found, int64_t wanted, const char* what) {
  if (found != wanted) {
    throw std::invalid_argument(std::string(what) + ": expected " + std::to_string(wanted) + ", found " +
                                std::to_string(found));
  }
}

void expect_rows(const LinearWeight& weight, int64_t first, int64_t count) {
  if (first < 0 || count < 0 || first > weight.view().n - count) {
    throw std::invalid_argument(std::to_string(count) + " rows from " + std::to_string(first) +
                                " on are not within the " + std::to_string(weight.view().n) + " of the weight");
  }
}

void expect_kind(bool fits, const char* what) {
  if (!fits) throw std::invalid_argument(std::string("the weight's format does not take ") + what);
}

bool is_same(const WeightFormat& a, const WeightFormat& b) {
  return a.kind == b.kind && a.group == b.group && a.zero == b.zero && a.has_minima == b.has_minima &&
         a.scales == b.scales && a.code_bits == b.code_bits;
}

WeightFormat float_format(const std::string& dtype) {
  WeightFormat format;
  if (dtype == "float32") return format;
  if (dtype != "bfloat16" && dtype != "float16") {
    throw std::invalid_argument("weights are float32, bfloat16 or float16, not " + dtype);
  }
  format.kind = dtype == "float16" ? WeightKind::kF16 : WeightKind::kBf16;
  return format;
}

const WeightFormat& rounded_format(const std::string& quantization) {
  if (quantization == "w8") return kRoundedW8;
  if (quantization == "w4") return kRoundedW4;
  throw std::invalid_argument("weights are rounded to w8 or w4, not to " + quantization);
}

ColumnOrder order_of(bool is_glu) { return is_glu ? ColumnOrder::kGlu : ColumnOrder::kPlain; }

void put_floats(const LinearWeight& weight, int64_t first, const Matrix& rows) {
  expect_rows(weight, first, rows.shape(0));
  expect(rows.shape(1), weight.view().k, "numbers in a row");
  expect_kind(!weight.view().format.is_quantised(), "floating point numbers");
  const InterpreterReleased released;
  for (size_t i = 0; i < rows.shape(0); ++i) place_floats(weight.view(), first + i, rows.data() + i * rows.shape(1));
}

void put_stored(const LinearWeight& weight, Pool& pool, int64_t first, const std::string& kind,
                const ByteMatrix& rows) {
  const StoredRows stored{float_kind(kind), rows.data(), static_cast<int64_t>(rows.shape(0))};
  expect_rows(weight, first, stored.num_rows);
  expect(rows.shape(1), weight.view().k * item_bytes(stored.kind), "bytes in a row");
  const WeightFormat& format = weight.view().format;
  expect_kind(!format.is_quantised() || is_same(format, kRoundedW8) || is_same(format, kRoundedW4),
              "numbers to be rounded");
  const InterpreterReleased released;
  put_stored_rows(pool, weight.view(), first, stored);
}

void put_blocks(const LinearWeight& weight, int64_t first, const std::string& name, const ByteMatrix& rows) {
  const BlockType& type = block_type(name);
  const int64_t k = weight.view().k;
  expect_rows(weight, first, rows.shape(0));
  expect_kind(is_same(type.format, weight.view().format), type.name);
  expect(rows.shape(1), k / type.elements * type.bytes, "bytes in a row");
  const InterpreterReleased released;
  RowCodes codes;
  for (size_t i = 0; i < rows.shape(0); ++i) {
    unpack_row(type, rows.data() + i * rows.shape(1), k, codes);
    check_codes(type.format, i, codes);
    place_codes(weight.view(), first + i, codes);
  }
}

void put_codes(const LinearWeight& weight, int64_t first, const ByteMatrix& codes, const Matrix& scales,
               std::optional<Matrix> minima) {
  const PackedLinear& view = weight.view();
  const WeightFormat& format = view.format;
  expect_kind(format.is_quantised() && format.has_minima == minima.has_value(), "such codes");
  const int64_t num_rows = codes.shape(0), num_groups = view.num_groups();
  expect_rows(weight, first, num_rows);
  expect(codes.shape(1), view.k, "codes in a row");
  expect(scales.shape(0), num_rows, "rows of scales");
  expect(scales.shape(1), num_groups, "scales in a row");
  if (minima) expect(minima->shape(0), num_rows, "rows of minima");
  if (minima) expect(minima->shape(1), num_groups, "minima in a row");
  RowCodes row;
  for (int64_t i = 0; i < num_rows; ++i) {
    row.codes.assign(codes.data() + i * view.k, codes.data() + (i + 1) * view.k);
    row.scales.assign(scales.data() + i * num_groups, scales.data() + (i + 1) * num_groups);
    if (minima) row.minima.assign(minima->data() + i * num_groups, minima->data() + (i + 1) * num_groups);
    check_codes(format, i, row);
    place_codes(view, first + i, row);
  }
}

void put_bias(const LinearWeight& weight, const Vector& bias) {
  expect(bias.shape(0), weight.view().n, "numbers of the bias");
  expect_kind(weight.view().has_bias, "a bias");
  place_bias(weight.view(), bias.data());
}

nb::object read_rows(const LinearWeight& weight, int64_t first, int64_t count) {
  expect_rows(weight, first, count);
  const int64_t k = weight.view().k;
  auto rows = make_array<float>(count, k);
  for (int64_t i = 0; i < count; ++i) read_floats(weight.view(), first + i, rows.data() + i * k);
  return rows.cast();
}

void bind_weights(nb::module_& module) {
  nb::class_<LinearWeight>(module, "LinearWeight",
                           "A matrix [n, k] packed for the kernels, zero until rows are put into it.")
      .def_static(
          "of_floats",
          [](const std::string& dtype, int64_t n, int64_t k, bool glu, bool bias) {
            return new LinearWeight(float_format(dtype), n, k, order_of(glu), bias);
          },
          nb::arg("dtype"), nb::arg("n"), nb::arg("k"), nb::kw_only(), nb::arg("glu") = false,
          nb::arg("bias") = false, "dtype: float32, bfloat16 or float16. glu: the matrix is gate over up.")
      .def_static(
          "of_rounded",
          [](const std::string& quantization, int64_t n, int64_t k, bool glu, bool bias) {
            return new LinearWeight(rounded_format(quantization), n, k, order_of(glu), bias);
          },
          nb::arg("quantization"), nb::arg("n"), nb::arg("k"), nb::kw_only(), nb::arg("glu") = false,
          nb::arg("bias") = false, "quantization: w8 or w4; rows are rounded as `put_stored` takes them.")
      .def_static(
          "of_blocks",
          [](const std::string& type, int64_t n, int64_t k, bool glu, bool bias) {
            const BlockType& blocks = block_type(type);
            if (k % blocks.elements != 0) expect(k % blocks.elements, 0, "numbers beyond a row's last whole block");
            return new LinearWeight(blocks.format, n, k, order_of(glu), bias);
          },
          nb::arg("type"), nb::arg("n"), nb::arg("k"), nb::kw_only(), nb::arg("glu") = false, nb::arg("bias") = false,
          "type: a quantised type of GGUF, kept exactly.")
      .def_static(
          "of_codes",
          [](int bits, int group, int zero, int64_t n, int64_t k, bool glu) {
            const WeightKind kind = bits == 4 ? WeightKind::kW4 : WeightKind::kW8;
            const WeightFormat format{kind, group, zero, zero == 0, ScaleKind::kF32, bits};
            return new LinearWeight(format, n, k, order_of(glu), false);
          },
          nb::arg("bits"), nb::arg("group"), nb::arg("zero"), nb::arg("n"), nb::arg("k"), nb::kw_only(),
          nb::arg("glu") = false, "w = scale * (code - zero), or with zero 0 scale * code + minimum.")
      .def("row_bits", [](const LinearWeight& weight) {
             return row_form(weight.view().format, Precision::kInt8) == RowForm::kBytes ? 8 : 16;
           }, "Of the integers that rows are quantised to where 8 bits would do.")
      .def("put_floats", &put_floats, nb::arg("first"), nb::arg("rows"), "rows: [m, k] float32.")
      .def("put_stored", &put_stored, nb::arg("pool"), nb::arg("first"), nb::arg("kind"), nb::arg("rows"),
           "rows: [m, bytes of a row] uint8 of kind F32, F16 or BF16, rounded to what the weight holds.")
      .def("put_blocks", &put_blocks, nb::arg("first"), nb::arg("type"), nb::arg("rows"),
           "rows: [m, bytes of a row] uint8, as the file has them.")
      .def("put_codes", &put_codes, nb::arg("first"), nb::arg("codes"), nb::arg("scales"),
           nb::arg("minima") = nb::none(), "codes: [m, k] uint8. scales, minima: [m, k / group] float32.")
      .def("put_bias", &put_bias, nb::arg("bias"), "bias: [n] float32.")
      .def("read", &read_rows, nb::arg("first"), nb::arg("count"), "Rows [count, k] float32: what was put, exactly.")
      .def_prop_ro("n", [](const LinearWeight& weight) { return weight.view().n; })
      .def_prop_ro("k", [](const LinearWeight& weight) { return weight.view().k; })
      .def_prop_ro("num_panels", [](const LinearWeight& weight) { return weight.view().num_panels(); })
      .def_prop_ro("num_outputs", [](const LinearWeight& weight) { return weight.view().num_outputs(); })
      .def_prop_ro("num_bytes", [](const LinearWeight& weight) { return weight.view().num_bytes(); });
}

// Of every four shorts, numbers 0, 2, 1, 3: the order is its own inverse.
int64_t place_of_short(int64_t i) {
  constexpr int kOrder[4] = {0, 2, 1, 3};
  return i / 4 * 4 + kOrder[i % 4];
}

RowForm form_of(int bits) {
  if (bits != 8 && bits != 16) throw std::invalid_argument("rows are of 8 or 16 bits, not " + std::to_string(bits));
  return bits == 8 ? RowForm::kBytes : RowForm::kShorts;
}

// Codes and scales as they are given; sums follow from them.
QuantisedRows* given_rows(const Shorts& codes, const Matrix& scales, int bits) {
  const int64_t num_rows = codes.shape(0), k = codes.shape(1), num_groups = k / kScaleGroup;
  auto made = std::make_unique<QuantisedRows>(num_rows, k, form_of(bits));
  const QuantRows& rows = made->view;
  expect(scales.shape(0), num_rows, "rows of scales");
  expect(scales.shape(1), num_groups, "scales in a row");
  std::copy_n(scales.data(), num_rows * num_groups, rows.scales);
  std::fill_n(rows.sums32, num_rows * num_groups, 0.0f);
  std::fill_n(rows.sums16, num_rows * k / kSumGroup, 0.0f);
  for (int64_t i = 0; i < num_rows * k; ++i) {
    const int16_t code = codes.data()[i];
    if (rows.form == RowForm::kBytes) {
      if (code != int8_t(code)) throw std::invalid_argument("a code of " + std::to_string(code) + " in 8 bits");
      rows.bytes[i] = int8_t(code);
    } else {
      rows.shorts[place_of_short(i)] = code;
    }
    rows.sums32[i / kScaleGroup] += code;  // exact: far below 2^24
    rows.sums16[i / kSumGroup] += code;
  }
  for (int64_t i = 0; i < num_rows * k / kSumGroup; ++i) rows.sums16[i] *= rows.scales[i * kSumGroup / kScaleGroup];
  for (int64_t i = 0; i < num_rows * num_groups; ++i) {
    rows.sums32[i] *= rows.scales[i];
    rows.offsets32[i] = -kUsualZero * rows.sums32[i];
  }
  return made.release();
}

RowNorm norm_over(const Matrix& x, const Vector& gamma, float eps, const std::optional<Vector>& beta) {
  expect(gamma.shape(0), x.shape(1), "numbers of gamma");
  if (beta) expect(beta->shape(0), x.shape(1), "numbers of beta");
  return {gamma.data(), eps, beta ? beta->data() : nullptr};
}

QuantisedRows* quantised(const Matrix& x, std::optional<Vector> gamma, float eps, std::optional<Vector> beta,
                         int bits) {
  auto made = std::make_unique<QuantisedRows>(x.shape(0), x.shape(1), form_of(bits));
  if (gamma) {
    norm_quantise_rows(rows_of(x), norm_over(x, *gamma, eps, beta), 0, made->num_rows, made->view);
  } else {
    quantise_rows(rows_of(x), 0, made->num_rows, made->view);
  }
  return made.release();
}

nb::object normed(const Matrix& x, const Vector& gamma, float eps, std::optional<Vector> beta) {
  auto out = make_array<float>(x.shape(0), x.shape(1));
  norm_rows(rows_of(x), norm_over(x, gamma, eps, beta), 0, x.shape(0), out.data());
  return out.cast();
}

template <typename T>
nb::object copy_of(const T* data, int64_t num_rows, int64_t width) {
  auto copy = make_array<T>(num_rows, width);
  std::copy_n(data, num_rows * width, copy.data());
  return copy.cast();
}

nb::object codes_of(const QuantisedRows& rows) {
  const QuantRows& view = rows.view;
  if (view.form == RowForm::kBytes) return copy_of(view.bytes, rows.num_rows, view.k);
  auto codes = make_array<int16_t>(rows.num_rows, view.k);
  for (int64_t i = 0; i < rows.num_rows * view.k; ++i) codes.data()[i] = view.shorts[place_of_short(i)];
  return codes.cast();
}

void bind_rows(nb::module_& module) {
  nb::class_<QuantisedRows>(module, "QuantisedRows", "Activations [m, k] in integers, a scale for each 32 of a row.")
      .def_static("of_codes", &given_rows, nb::arg("codes"), nb::arg("scales"), nb::kw_only(), nb::arg("bits"),
                  "codes: [m, k] int16, within the bits, 8 or 16. scales: [m, k / 32] float32.")
      .def_static("of_floats", &quantised, nb::arg("x"), nb::arg("gamma") = nb::none(), nb::arg("eps") = 0.0f,
                  nb::arg("beta") = nb::none(), nb::kw_only(), nb::arg("bits"),
                  "x: [m, k] float32, normalised first where gamma [k] is given, centred where beta is.")
      .def_prop_ro("codes", &codes_of)
      .def_prop_ro("scales",
                   [](const QuantisedRows& rows) {
                     return copy_of(rows.view.scales, rows.num_rows, rows.view.k / kScaleGroup);
                   })
      .def_prop_ro("sums32",
                   [](const QuantisedRows& rows) {
                     return copy_of(rows.view.sums32, rows.num_rows, rows.view.k / kScaleGroup);
                   })
      .def_prop_ro("sums16", [](const QuantisedRows& rows) {
        return copy_of(rows.view.sums16, rows.num_rows, rows.view.k / kSumGroup);
      });
}

struct Product {
  const PackedLinear& weight;
  const Activations& x;
  const Epilogue& epilogue;
  int64_t begin;
  int64_t end;
};

// Panels [begin, end), an equal share of them to each thread.
void multiply(const Product& product, int num_threads) {
  check_gemm(product.weight, product.x, product.epilogue);
  if (product.begin < 0 || product.begin > product.end || product.end > product.weight.num_panels()) {
    throw std::invalid_argument("there are " + std::to_string(product.weight.num_panels()) + " panels");
  }
  if (num_threads < 1) throw std::invalid_argument("a product takes at least one thread");
  const InterpreterReleased released;
  Pool pool(num_threads);
  pool.run(
      [](void* context, int index, int count) {
        const Product& part = *static_cast<Product*>(context);
        const int64_t size = part.end - part.begin;
        gemm_panels(part.weight, part.x, part.begin + size * index / count, part.begin + size * (index + 1) / count,
                    part.epilogue);
      },
      const_cast<Product*>(&product));
}

Epilogue epilogue_into(const MutableMatrix& out, const PackedLinear& weight, int64_t num_rows,
                       Epilogue::Kind kind) {
  expect(out.shape(0), num_rows, "rows of the output");
  expect(out.shape(1), weight.num_outputs(), "columns of the output");
  Epilogue epilogue;
  epilogue.kind = kind;
  epilogue.out = out.data();
  epilogue.stride = out.shape(1);
  return epilogue;
}

template <typename Rows>
void bind_products(nb::module_& module) {
  module.def(
      "multiply",
      [](const LinearWeight& weight, const Rows& x, const MutableMatrix& out, bool add, int64_t begin, int64_t end,
         int num_threads) {
        const auto kind = add ? Epilogue::Kind::kAdd : Epilogue::Kind::kStore;
        const Activations rows = activations_of(x);
        multiply({weight.view(), rows, epilogue_into(out, weight.view(), rows.num_rows, kind), begin, end},
                 num_threads);
      },
      nb::arg("weight"), nb::arg("x"), nb::arg("out").noconvert(), nb::kw_only(), nb::arg("add"), nb::arg("begin"),
      nb::arg("end"), nb::arg("num_threads"), "Panels [begin, end) of x W^T + bias into out [m, n], or added to it.");
  module.def(
      "multiply_activated",
      [](const LinearWeight& weight, const Rows& x, const MutableMatrix& out, const std::string& activation,
         int bits, int num_threads) {
        const Activations rows = activations_of(x);
        const bool is_gated = weight.view().order == ColumnOrder::kGlu;
        const auto kind = is_gated ? Epilogue::Kind::kGate : Epilogue::Kind::kActivate;
        Epilogue epilogue = epilogue_into(out, weight.view(), rows.num_rows, kind);
        epilogue.activation = activation_of(activation);
        std::unique_ptr<QuantisedRows> quants;
        if (weight.view().num_outputs() % kScaleGroup == 0) {
          quants = std::make_unique<QuantisedRows>(rows.num_rows, weight.view().num_outputs(), form_of(bits));
          epilogue.quants = quants->view;
        }
        multiply({weight.view(), rows, epilogue, 0, weight.view().num_panels()}, num_threads);
        return quants.release();
      },
      nb::arg("weight"), nb::arg("x"), nb::arg("out").noconvert(), nb::kw_only(), nb::arg("activation"),
      nb::arg("bits"), nb::arg("num_threads"),
      "activation(x W^T + bias) into out [m, F], activation(gate) * up of a weight that is gate over up. Returns them "
      "in integers of so many bits too, None where F is no multiple of 32.");
}

}  // namespace

void bind_gemm(nb::module_& module) {
  bind_weights(module);
  bind_rows(module);
  bind_products<Matrix>(module);
  bind_products<QuantisedRows>(module);
  module.def("normalise", &normed, nb::arg("x"), nb::arg("gamma"), nb::arg("eps"), nb::arg("beta") = nb::none(),
             "x: [m, k] float32. RMS norm, layer norm where beta is given.");
  bind_gemm_timing(module);
}

}  // namespace noria
