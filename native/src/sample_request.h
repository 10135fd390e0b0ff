// One request as the sampler knows it: how to choose its tokens, and what it has seen.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace noria {

// Numbers of noria.sampling.params.SamplingParams that decide a choice.
struct SamplingRules {
  double temperature = 1;
  int64_t top_k = 0;
  double top_p = 1;
  double min_p = 0;
  double repetition = 1;
  double presence = 0;
  double frequency = 0;
  int64_t min_tokens = 0;
  uint64_t seed = 0;
};

// A logit that was replaced, so that it can be put back.
struct Change {
  int32_t id;
  float before;
};

class SampledRequest {
 public:
  SampledRequest(const SamplingRules& rules, int64_t num_prompt);

  const SamplingRules& rules() const { return rules_; }
  int64_t num_known() const { return num_known_; }
  int64_t max_id() const { return max_id_; }
  int64_t max_changes() const { return int64_t(bias_.size() + ids_.size() + ending_ids_.size()); }

  // While it is made: the prompt, the outputs so far in their order, what is biased, what ends an output.
  void add_prompt(int32_t id);
  void append(int32_t id);
  void add_bias(int32_t id, float bias);
  void add_ending(int32_t id);

  // Bias and penalties, in place. -> how many changes were noted, each before it was made.
  int64_t adjust(float* logits, Change* changes) const;
  // Withholds what would end the output, while it must not end yet; as adjust.
  int64_t withhold(float* logits, Change* changes) const;

 private:
  bool has_penalties() const;
  int32_t find_or_add(int32_t id);
  void note_id(int32_t id);

  struct Bias {
    int32_t id;
    float value;
  };

  const SamplingRules rules_;
  const int64_t num_prompt_;
  int64_t num_known_;
  int64_t max_id_ = -1;
  std::vector<Bias> bias_;
  std::vector<int32_t> ending_ids_;
  std::vector<int32_t> ids_;     // penalised, distinct
  std::vector<int32_t> counts_;  // how often each was sampled: 0 for a token of the prompt alone
  std::unordered_map<int32_t, int32_t> places_;
};

}  // namespace noria
