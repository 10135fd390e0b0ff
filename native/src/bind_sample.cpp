// The sampler for Python. Arrays and ids are checked here; nothing below looks at them again.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bindings.h"
#include "sample.h"

namespace nb = nanobind;

namespace noria {
namespace {

using Ints = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using WordRows = nb::ndarray<const uint32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using FloatRow = nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using FloatRows = nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using IntRows = nb::ndarray<int32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using DoubleRows = nb::ndarray<double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

constexpr double kMostBias = 1e30;  // far beyond any that is meant, and a float

std::string number(int64_t value) { return std::to_string(value); }

// What is checked for each row or token of a step calls this where it fails: the message is made then only.
[[noreturn]] void refuse(const std::string& text) { throw std::invalid_argument(text); }

void expect(bool holds, const std::string& text) {
  if (!holds) refuse(text);
}

void expect_ids_below(int64_t max_id, int64_t size) {
  if (max_id < size) return;
  refuse("a request holds the token id " + number(max_id) + "; a row has " + number(size) + " logits");
}

// Rows that are there, none twice: they are worked on at the same time.
void expect_rows(const Ints& rows, int64_t num_rows) {
  int64_t before = -1;
  for (size_t i = 0; i < rows.shape(0); ++i) {
    const int64_t row = rows.data()[i];
    if (row <= before || row >= num_rows) {
      refuse("row " + number(row) + " after row " + number(before) + " of " + number(num_rows) + "; rows ascend");
    }
    before = row;
  }
}

template <typename T>
T number_of(nb::handle params, const char* name) {
  return nb::cast<T>(params.attr(name));
}

SamplingRules rules_of(nb::handle params, uint64_t seed) {
  SamplingRules rules;
  rules.temperature = number_of<double>(params, "temperature");
  rules.top_k = number_of<int64_t>(params, "top_k");
  rules.top_p = number_of<double>(params, "top_p");
  rules.min_p = number_of<double>(params, "min_p");
  rules.repetition = number_of<double>(params, "repetition_penalty");
  rules.presence = number_of<double>(params, "presence_penalty");
  rules.frequency = number_of<double>(params, "frequency_penalty");
  rules.min_tokens = number_of<int64_t>(params, "min_tokens");
  rules.seed = seed;
  for (const double value : {rules.temperature, rules.min_p, rules.presence, rules.frequency, rules.repetition}) {
    expect(std::isfinite(value), "a sampling parameter is " + std::to_string(value));
  }
  expect(rules.temperature >= 0 && rules.top_p > 0 && rules.top_p <= 1 && rules.min_p >= 0 && rules.min_p <= 1,
         "temperature " + std::to_string(rules.temperature) + ", top_p " + std::to_string(rules.top_p) + ", min_p " +
             std::to_string(rules.min_p) + "; at least 0, within (0, 1], within [0, 1]");
  return rules;
}

int32_t checked_id(int64_t id) {
  if (id < 0 || id > INT32_MAX) refuse("the token id " + number(id) + " is out of range");
  return static_cast<int32_t>(id);
}

void make_request(SampledRequest* self, nb::handle params, uint64_t seed, const Ints& token_ids, int64_t num_prompt,
                  const std::vector<int64_t>& ending_ids) {
  const auto num_known = static_cast<int64_t>(token_ids.shape(0));
  expect(num_prompt >= 0 && num_prompt <= num_known,
         "a prompt of " + number(num_prompt) + " of " + number(num_known) + " known tokens");
  for (int64_t i = 0; i < num_known; ++i) checked_id(token_ids.data()[i]);
  SampledRequest made(rules_of(params, seed), num_prompt);
  for (int64_t i = 0; i < num_prompt; ++i) made.add_prompt(token_ids.data()[i]);
  for (int64_t i = num_prompt; i < num_known; ++i) made.append(token_ids.data()[i]);
  for (const auto [id, bias] : nb::cast<nb::dict>(params.attr("logit_bias"))) {
    const auto value = nb::cast<double>(bias);
    expect(std::abs(value) <= kMostBias, "a logit's bias is " + std::to_string(value));
    made.add_bias(checked_id(nb::cast<int64_t>(id)), static_cast<float>(value));
  }
  for (const int64_t id : ending_ids) made.add_ending(checked_id(id));
  new (self) SampledRequest(std::move(made));
}

void adjust_row(const SampledRequest& request, const FloatRow& logits) {
  expect_ids_below(request.max_id(), static_cast<int64_t>(logits.shape(0)));
  std::vector<Change> changes(size_t(request.max_changes()));
  request.adjust(logits.data(), changes.data());
}

// The row of bits at a place, nullptr for place -1.
const uint32_t* allowed_at(const WordRows& bits, int64_t place, int64_t size) {
  if (place == -1) return nullptr;
  if (place < 0 || place >= int64_t(bits.shape(0)) || int64_t(bits.shape(1)) * 32 < size) {
    refuse("row " + number(place) + " of [" + number(bits.shape(0)) + ", " + number(bits.shape(1)) +
           "] words of bits for " + number(size) + " logits");
  }
  return bits.data() + place * bits.shape(1);
}

// places [n]: of each request the row of bits [m, ceil(vocab / 32)] that says which tokens are allowed, -1: all are.
// outcomes [n, 3]: token id or -1, then how many logits are NaN and the first of them.
void sample(Sampler& sampler, const FloatRows& logits, const Ints& rows, const std::vector<SampledRequest*>& requests,
            const WordRows& bits, const Ints& places, const IntRows& outcomes, Sampler::Adjust adjust) {
  const size_t count = rows.shape(0);
  const auto size = static_cast<int64_t>(logits.shape(1));
  expect(requests.size() == count && places.shape(0) == count && outcomes.shape(0) == count && outcomes.shape(1) == 3,
         number(count) + " rows for " + number(requests.size()) + " requests, " + number(places.shape(0)) +
             " places and [" + number(outcomes.shape(0)) + ", " + number(outcomes.shape(1)) + "] outcomes");
  expect_rows(rows, static_cast<int64_t>(logits.shape(0)));
  std::vector<SampledRow> sampled(count);
  for (size_t i = 0; i < count; ++i) {
    if (requests[i] == nullptr) refuse("a request is None");
    expect_ids_below(requests[i]->max_id(), size);
    const uint32_t* allowed = allowed_at(bits, places.data()[i], size);
    sampled[i] = {logits.data() + rows.data()[i] * size, requests[i], allowed};
  }
  std::vector<Outcome> found(count);
  {
    const InterpreterReleased released;
    sampler.sample(sampled, size, adjust, found.data());
  }
  for (size_t i = 0; i < count; ++i) {
    if (found[i].token_id >= 0) requests[i]->append(found[i].token_id);
    const int32_t told[3] = {found[i].token_id, found[i].num_nan, found[i].first_nan};
    std::copy_n(told, 3, outcomes.data() + i * 3);
  }
}

template <Sampler::Adjust adjust>
void sample_adjusting(Sampler& sampler, const FloatRows& logits, const Ints& rows,
                      const std::vector<SampledRequest*>& requests, const WordRows& bits, const Ints& places,
                      const IntRows& outcomes) {
  sample(sampler, logits, rows, requests, bits, places, outcomes, adjust);
}

// asked [n, 3]: row, token id, how many alternatives. outcomes as of `sample`, with the rank in a fourth column.
// top_ids [n, m], top [n, 1 + m]: the token's logprob, then those of the alternatives; m the most that any asks for.
void logprobs(Sampler& sampler, const FloatRows& logits, const IntRows& asked, const IntRows& outcomes,
              const IntRows& top_ids, const DoubleRows& top) {
  const size_t count = asked.shape(0), width = top_ids.shape(1);
  const auto size = static_cast<int64_t>(logits.shape(1));
  expect(asked.shape(1) == 3 && outcomes.shape(0) == count && outcomes.shape(1) == 4 && top_ids.shape(0) == count &&
             top.shape(0) == count && top.shape(1) == width + 1,
         "the arrays of " + number(count) + " logprobs do not fit together");
  std::vector<LogprobsRow> rows(count);
  for (size_t i = 0; i < count; ++i) {
    const int32_t* one = asked.data() + i * 3;
    const bool is_there = one[0] >= 0 && one[0] < int64_t(logits.shape(0)) && one[1] >= 0 && one[1] < size;
    if (!is_there || one[2] < 0 || one[2] > int64_t(width) || one[2] > size) {
      refuse("logprobs of token " + number(one[1]) + " and " + number(one[2]) + " others in row " + number(one[0]) +
             " of logits [" + number(logits.shape(0)) + ", " + number(size) + "]");
    }
    rows[i].logits = logits.data() + one[0] * size;
    rows[i].outcome.token_id = one[1];
    rows[i].num_top = one[2];
    rows[i].top_ids = top_ids.data() + i * width;
    rows[i].top_logprobs = top.data() + i * (width + 1) + 1;
  }
  {
    const InterpreterReleased released;
    sampler.logprobs(rows, size);
  }
  for (size_t i = 0; i < count; ++i) {
    const Outcome& outcome = rows[i].outcome;
    const int32_t told[4] = {outcome.token_id, outcome.num_nan, outcome.first_nan, int32_t(rows[i].rank)};
    std::copy_n(told, 4, outcomes.data() + i * 4);
    top.data()[i * (width + 1)] = rows[i].logprob;
  }
}

}  // namespace

void bind_sample(nb::module_& module) {
  nb::class_<SampledRequest>(module, "SampledRequest")
      .def("__init__", &make_request, nb::arg("params"), nb::arg("seed"), nb::arg("token_ids"), nb::arg("num_prompt"),
           nb::arg("ending_ids"))
      .def("adjust", &adjust_row, nb::arg("logits").noconvert(), "Bias and penalties, in place.");
  nb::class_<Sampler>(module, "Sampler")
      .def(nb::init<Pool&>(), nb::arg("pool"), nb::keep_alive<1, 2>())
      .def("sample", &sample_adjusting<Sampler::Adjust::kAll>, nb::arg("logits"), nb::arg("rows"), nb::arg("requests"),
           nb::arg("bits"), nb::arg("places"), nb::arg("outcomes").noconvert(),
           "Chosen tokens join their requests; lets the interpreter go on.")
      .def("sample_adjusted", &sample_adjusting<Sampler::Adjust::kWithholdOnly>, nb::arg("logits"), nb::arg("rows"),
           nb::arg("requests"), nb::arg("bits"), nb::arg("places"), nb::arg("outcomes").noconvert(),
           "The same from logits that `adjust` has been applied to.")
      .def("logprobs", &logprobs, nb::arg("logits"), nb::arg("asked"), nb::arg("outcomes").noconvert(),
           nb::arg("top_ids").noconvert(), nb::arg("top").noconvert(), "Lets the interpreter go on.");
}

}  // namespace noria
