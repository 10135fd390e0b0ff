#include "sample.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "sample_kernels.h"
#include "sample_math.h"
#include "sample_nucleus.h"

namespace noria {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kWeightless = -32;  // and all below: noria.sampling.arithmetic
constexpr float kLowest = -std::numeric_limits<float>::max();

float highest(const float* maxima, int64_t count) {
  float peak = -kInfinity;
  for (int64_t i = 0; i < count; ++i) {
    if (std::isnan(maxima[i])) return maxima[i];
    peak = std::max(peak, maxima[i]);
  }
  return peak;
}

Outcome no_choice(const float* logits, int64_t size) {
  Outcome outcome;
  for (int64_t id = size - 1; id >= 0; --id) {
    if (!std::isnan(logits[id])) continue;
    ++outcome.num_nan;
    outcome.first_nan = static_cast<int32_t>(id);
  }
  return outcome;
}

// Logits fit for arithmetic, with the highest of each panel and of all: noria.sampling.nonfinite.settle. A peak that
// is not finite: there is nothing to choose from.
ScaledRow settled(const float* logits, int64_t size, SampleScratch& scratch) {
  float* maxima = scratch.maxima.floats();
  ScaledRow row{logits, size, 0, 1, maxima};
  panel_maxima_avx2(logits, size, maxima);
  row.peak = highest(maxima, num_sample_panels(size));
  if (row.peak != kInfinity) return row;
  float* certain = scratch.settled.floats();
  for (int64_t id = 0; id < size; ++id) certain[id] = logits[id] == kInfinity ? 0 : -kInfinity;
  panel_maxima_avx2(certain, size, maxima);
  row.logits = certain;
  row.peak = 0;
  return row;
}

uint32_t first_of_highest(const ScaledRow& row) {
  int64_t panel = 0;
  while (row.maxima[panel] != row.peak) ++panel;
  int64_t id = panel * kSamplePanel;
  while (row.logits[id] != row.peak) ++id;
  return static_cast<uint32_t>(id);
}

// A floor that admits `count` tokens or more, and few more as a rule: the count-th of the panels' maxima.
float floor_of(const ScaledRow& row, int64_t count, SampleScratch& scratch) {
  const int64_t num_panels = num_sample_panels(row.size);
  if (count > num_panels) return -kInfinity;
  float* maxima = scratch.panels.floats();
  std::copy_n(row.maxima, num_panels, maxima);
  std::nth_element(maxima, maxima + count - 1, maxima + num_panels, std::greater<float>());
  return maxima[count - 1];
}

// The `count` first keys, in any order -> how many there are.
int64_t first_keys(uint64_t* keys, int64_t num_keys, int64_t count) {
  if (num_keys <= count) return num_keys;
  std::nth_element(keys, keys + count, keys + num_keys);
  return count;
}

// Keys of the nucleus of all tokens that the floor admits -> how many. Most nuclei are small: from the likeliest tokens
// down, in bands, until the target is reached.
int64_t gather_nucleus(const ScaledRow& row, float floor, double top_p, const Keys& keys) {
  const int64_t target = share_of(total_weight_avx2(row, floor), top_p);
  int64_t count = 0, reached = 0;
  float above = kInfinity;
  for (float lowest = -4;; lowest -= 2) {
    const float here = std::max(floor, lowest);
    const Keys band{keys.keys + count, keys.weights + count};
    const int64_t num_here = gather_avx2(row, here, above, band.keys);
    const int64_t weight = key_weights_avx2(band.keys, num_here, band.weights);
    if (reached + weight >= target) return count + nucleus(band, num_here, target - reached);
    count += num_here;
    reached += weight;
    above = here;
    if (here == floor || here <= kWeightless) return count;
  }
}

// noria.sampling.filters.kept_ids, and the draw among them.
uint32_t draw(const ScaledRow& row, const SampledRequest& request, SampleScratch& scratch) {
  const SamplingRules& rules = request.rules();
  const float floor = rules.min_p > 0 ? static_cast<float>(ln(rules.min_p)) : -kInfinity;
  const uint64_t key = position_key(rules.seed, static_cast<uint64_t>(request.num_known()));
  const bool has_top_k = rules.top_k > 0 && rules.top_k < row.size;
  if (!has_top_k && rules.top_p >= 1) return draw_avx2(row, floor, key, scratch.panels.floats());
  const Keys keys{reinterpret_cast<uint64_t*>(scratch.keys.data()), reinterpret_cast<int64_t*>(scratch.weights.data())};
  const float possible = std::max(floor, kLowest);
  int64_t count;
  if (has_top_k) {
    const float lowest = std::max(possible, floor_of(row, rules.top_k, scratch));
    count = first_keys(keys.keys, gather_avx2(row, lowest, kInfinity, keys.keys), rules.top_k);
    if (rules.top_p < 1) {
      count = nucleus(keys, count, share_of(key_weights_avx2(keys.keys, count, keys.weights), rules.top_p));
    }
  } else {
    count = gather_nucleus(row, possible, rules.top_p, keys);
  }
  return draw_keys_avx2(keys.keys, count, key);
}

Outcome choose(const float* logits, int64_t size, const SampledRequest& request, SampleScratch& scratch) {
  ScaledRow row = settled(logits, size, scratch);
  if (!std::isfinite(row.peak)) return no_choice(logits, size);
  Outcome outcome;
  if (request.rules().temperature == 0) {
    outcome.token_id = static_cast<int32_t>(first_of_highest(row));
    return outcome;
  }
  // Beyond these, in float32, a temperature is 0 or infinite, and 0 / 0 and inf / inf are not numbers.
  row.temperature = static_cast<float>(std::min(std::max(request.rules().temperature, 1e-30), 1e30));
  float* scaled = scratch.scaled.floats();
  const int64_t num_panels = num_sample_panels(size);
  for (int64_t panel = 0; panel < num_panels; ++panel) scaled[panel] = row.scaled(row.maxima[panel]);
  row.maxima = scaled;
  outcome.token_id = static_cast<int32_t>(draw(row, request, scratch));
  return outcome;
}

Outcome choose_and_restore(const SampledRow& row, int64_t size, Sampler::Adjust adjust, SampleScratch& scratch) {
  Change* changes = reinterpret_cast<Change*>(scratch.changes.data());
  int64_t count = adjust == Sampler::Adjust::kAll ? row.request->adjust(row.logits, changes) : 0;
  const float* logits = row.logits;
  if (row.allowed != nullptr) {
    mask_avx2(row.logits, size, row.allowed, scratch.masked.floats());
    logits = scratch.masked.floats();
  } else {
    count += row.request->withhold(row.logits, changes + count);
  }
  const Outcome outcome = choose(logits, size, *row.request, scratch);
  while (count-- > 0) row.logits[changes[count].id] = changes[count].before;
  return outcome;
}

// noria.sampling.logprobs.token_logprobs.
void tell_logprobs(LogprobsRow& asked, int64_t size, SampleScratch& scratch) {
  const ScaledRow row = settled(asked.logits, size, scratch);
  if (!std::isfinite(row.peak)) {
    asked.outcome = no_choice(asked.logits, size);
    return;
  }
  ScaledRow scaled = row;
  scaled.maxima = scratch.scaled.floats();
  const int64_t num_panels = num_sample_panels(size);
  for (int64_t panel = 0; panel < num_panels; ++panel) {
    scratch.scaled.floats()[panel] = row.scaled(row.maxima[panel]);
  }
  const double log_total = log_of_weights(total_weight_avx2(scaled, -kInfinity));
  const double peak = row.peak;
  const auto logprob = [&](int64_t id) { return (static_cast<double>(row.logits[id]) - peak) - log_total; };
  asked.logprob = logprob(asked.outcome.token_id);
  asked.rank = 1 + num_before_avx2(row.logits, size, asked.outcome.token_id);
  if (asked.num_top == 0) return;
  auto* keys = reinterpret_cast<uint64_t*>(scratch.keys.data());
  ScaledRow plain = row;
  plain.peak = 0;  // in the order of the logits themselves
  const int64_t count = gather_avx2(plain, floor_of(plain, asked.num_top, scratch), kInfinity, keys);
  std::sort(keys, keys + first_keys(keys, count, asked.num_top));
  for (int64_t place = 0; place < asked.num_top; ++place) {
    asked.top_ids[place] = static_cast<int32_t>(id_of(keys[place]));
    asked.top_logprobs[place] = logprob(asked.top_ids[place]);
  }
}

}  // namespace

void SampleScratch::reserve(int64_t size, int64_t num_changes, int64_t size_masked) {
  const size_t num_panels = size_t(num_sample_panels(size));
  for (Room* room : {&maxima, &scaled, &panels}) room->reserve(num_panels * sizeof(float));
  settled.reserve(size_t(size) * sizeof(float));
  masked.reserve(size_t(size_masked) * sizeof(float));
  for (Room* room : {&keys, &weights}) room->reserve(size_t(size + kGatherRoom) * sizeof(uint64_t));
  changes.reserve(size_t(num_changes) * sizeof(Change));
}

// work(index, scratch) for each index, by all threads; by the caller alone where there is only one.
template <typename Work>
void Sampler::share(int64_t count, const Work& work) {
  if (count == 1) {
    const PlainArithmetic plain;
    return work(0, scratch_[0]);
  }
  struct Context {
    Sampler* sampler;
    const Work* work;
    int64_t count;
  } context{this, &work, count};
  next_.reset();
  pool_.run(
      [](void* data, int thread_index, int) {
        const Context& context = *static_cast<Context*>(data);
        Sampler& sampler = *context.sampler;
        for (int64_t index = sampler.next_.take(1); index < context.count; index = sampler.next_.take(1)) {
          (*context.work)(index, sampler.scratch_[thread_index]);
        }
      },
      &context);
}

void Sampler::sample(const std::vector<SampledRow>& rows, int64_t size, Adjust adjust, Outcome* outcomes) {
  pool_.need_own_process();
  const std::lock_guard<std::mutex> lock(one_call_);
  int64_t num_changes = 0, size_masked = 0;
  for (const SampledRow& row : rows) {
    num_changes = std::max(num_changes, row.request->max_changes());
    if (row.allowed != nullptr) size_masked = size;
  }
  for (SampleScratch& scratch : scratch_) scratch.reserve(size, num_changes, size_masked);
  share(static_cast<int64_t>(rows.size()), [&](int64_t index, SampleScratch& scratch) {
    outcomes[index] = choose_and_restore(rows[index], size, adjust, scratch);
  });
}

void Sampler::logprobs(std::vector<LogprobsRow>& rows, int64_t size) {
  pool_.need_own_process();
  const std::lock_guard<std::mutex> lock(one_call_);
  for (SampleScratch& scratch : scratch_) scratch.reserve(size, 0, 0);
  share(static_cast<int64_t>(rows.size()),
        [&](int64_t index, SampleScratch& scratch) { tell_logprobs(rows[index], size, scratch); });
}

}  // namespace noria
