#include "sample_request.h"

#include <algorithm>
#include <limits>

namespace noria {

SampledRequest::SampledRequest(const SamplingRules& rules, int64_t num_prompt)
    : rules_(rules), num_prompt_(num_prompt), num_known_(num_prompt) {}

bool SampledRequest::has_penalties() const {
  return rules_.repetition != 1.0 || rules_.presence != 0.0 || rules_.frequency != 0.0;
}

void SampledRequest::note_id(int32_t id) { max_id_ = std::max<int64_t>(max_id_, id); }

int32_t SampledRequest::find_or_add(int32_t id) {
  const auto [entry, is_new] = places_.try_emplace(id, static_cast<int32_t>(ids_.size()));
  if (is_new) {
    note_id(id);
    ids_.push_back(id);
    counts_.push_back(0);
  }
  return entry->second;
}

void SampledRequest::add_prompt(int32_t id) {
  if (rules_.repetition != 1.0) find_or_add(id);
}

void SampledRequest::append(int32_t id) {
  ++num_known_;
  if (has_penalties()) ++counts_[find_or_add(id)];
}

void SampledRequest::add_bias(int32_t id, float bias) {
  note_id(id);
  bias_.push_back({id, bias});
}

void SampledRequest::add_ending(int32_t id) {
  note_id(id);
  ending_ids_.push_back(id);
}

int64_t SampledRequest::adjust(float* logits, Change* changes) const {
  Change* next = changes;
  for (const Bias& bias : bias_) {
    *next++ = {bias.id, logits[bias.id]};
    logits[bias.id] += bias.value;
  }
  for (size_t i = 0; i < ids_.size(); ++i) {
    *next++ = {ids_[i], logits[ids_[i]]};
    double value = logits[ids_[i]];
    if (rules_.repetition != 1.0) value = value > 0 ? value / rules_.repetition : value * rules_.repetition;
    value -= rules_.frequency * counts_[i] + rules_.presence * (counts_[i] > 0);
    logits[ids_[i]] = static_cast<float>(value);
  }
  return next - changes;
}

int64_t SampledRequest::withhold(float* logits, Change* changes) const {
  if (num_known_ - num_prompt_ >= rules_.min_tokens) return 0;
  Change* next = changes;
  for (const int32_t id : ending_ids_) {
    *next++ = {id, logits[id]};
    logits[id] = -std::numeric_limits<float>::infinity();
  }
  return next - changes;
}

}  // namespace noria
