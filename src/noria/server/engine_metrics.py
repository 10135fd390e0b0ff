"""The engine's metrics under their `vllm:` names, filled from its records and read by Prometheus."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from noria.core.outputs import FinishReason
from noria.engine.messages import EngineStats, RequestRecord, StepRecord
from noria.server.histogram import (
    CHOICES,
    FIRST_TOKEN_SECONDS,
    PREEMPTIONS,
    REQUEST_SECONDS,
    STEP_TOKENS,
    TOKEN_GAP_SECONDS,
    Histogram,
    token_counts,
)

_FINISHED_REASONS = ("stop", "length", "abort", "error", "repetition")

_HISTOGRAM_TEXTS = {
    "iteration_tokens_total": "Tokens of a step: prompt tokens taken in and tokens generated.",
    "time_to_first_token_seconds": "Time from acceptance to the first token.",
    "inter_token_latency_seconds": "Time between a token and the one before.",
    "e2e_request_latency_seconds": "Time from acceptance to the end.",
    "request_time_per_output_token_seconds": "A request's mean time a token after the first.",
    "request_queue_time_seconds": "Time spent waiting to be scheduled first.",
    "request_inference_time_seconds": "Time from first being scheduled to the end.",
    "request_prefill_time_seconds": "Time from first being scheduled to the first token.",
    "request_decode_time_seconds": "Time from the first token to the last.",
    "request_prompt_tokens": "Tokens of a sequence's prompt.",
    "request_generation_tokens": "Tokens a sequence generated.",
    "request_max_num_generation_tokens": "Tokens of the longest of a request's sequences.",
    "request_params_n": "Sequences asked for by a request.",
    "request_params_max_tokens": "The max_tokens of a sequence.",
    "request_num_preemptions": "Times a sequence was preempted.",
    "request_prefill_kv_computed_tokens": "Prompt tokens computed, not found in the prefix cache.",
}

# What some metrics were called in older servers.
LEGACY_NAMES = {
    "kv_cache_usage_perc": "gpu_cache_usage_perc",
    "inter_token_latency_seconds": "time_per_output_token_seconds",
    "prefix_cache_queries": "gpu_prefix_cache_queries",
    "prefix_cache_hits": "gpu_prefix_cache_hits",
}

_COUNTER_TEXTS = {
    "prefix_cache_queries": "Tokens looked up in the prefix cache.",
    "prefix_cache_hits": "Tokens found in the prefix cache.",
    "num_preemptions": "Preemptions.",
    "prompt_tokens": "Prompt tokens taken in, computed or cached.",
    "prompt_tokens_cached": "Prompt tokens that came from the prefix cache.",
    "generation_tokens": "Tokens generated.",
}


def _histograms(max_model_len: int) -> dict[str, Histogram]:
    lengths = token_counts(max_model_len)
    bounds: dict[str, tuple[float, ...]] = {
        "iteration_tokens_total": STEP_TOKENS,
        "time_to_first_token_seconds": FIRST_TOKEN_SECONDS,
        "inter_token_latency_seconds": TOKEN_GAP_SECONDS,
        "request_time_per_output_token_seconds": TOKEN_GAP_SECONDS,
        "request_prompt_tokens": lengths,
        "request_generation_tokens": lengths,
        "request_max_num_generation_tokens": lengths,
        "request_params_n": CHOICES,
        "request_params_max_tokens": lengths,
        "request_num_preemptions": PREEMPTIONS,
        "request_prefill_kv_computed_tokens": lengths,
    }
    return {name: Histogram(bounds.get(name, REQUEST_SECONDS)) for name in _HISTOGRAM_TEXTS}


def _finished_reason(finish: FinishReason) -> str:
    # Dashboards know one reason for every failure, and one for every end that came from outside.
    names = {
        FinishReason.LOST: FinishReason.ERROR,
        FinishReason.FAULT: FinishReason.ERROR,
        FinishReason.TIMEOUT: FinishReason.ABORT,
    }
    return names.get(finish, finish).value


@dataclass(slots=True)
class _Siblings:
    """The sequences of one user's request with n > 1 that have ended so far."""

    num_ended: int = 0
    most_tokens: int = 0


@dataclass(slots=True)
class _Totals:
    counters: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_COUNTER_TEXTS, 0))
    finished: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_FINISHED_REASONS, 0))


class EngineMetrics(Collector):
    """A RecordListener on the engine's thread, a Collector on the server's; one lock between them.

    model_name, engine: the labels of every series. stats: the engine's latest snapshot.
    cache_labels: the settings of the cache, as `cache_config_info` shows them.
    second_names: under which metrics are exported as well, by their names.
    """

    def __init__(
        self,
        model_name: str,
        max_model_len: int,
        stats: Callable[[], EngineStats],
        cache_labels: Callable[[], Mapping[str, str]],
        second_names: Mapping[str, str] | None = None,
        engine: str = "0",
    ) -> None:
        self._labels = {"model_name": model_name, "engine": engine}
        self._stats = stats
        self._cache_labels = cache_labels
        self._second_names = dict(second_names or {})
        self._lock = threading.Lock()
        self._totals = _Totals()
        self._histograms = _histograms(max_model_len)
        self._begun: set[str] = set()  # sequences that have been in a step and have not ended
        self._siblings: dict[str, _Siblings] = {}
        self._last_step = -1

    def on_step(self, record: StepRecord) -> None:
        with self._lock:
            if not 0 <= self._last_step < record.step:
                self._begin_engine(record)
            self._last_step = record.step
            counters = self._totals.counters
            num_cached = self._first_seen_cached(record)
            num_prompt = record.num_prompt_tokens + num_cached
            counters["prefix_cache_queries"] += record.prefix_queries
            counters["prefix_cache_hits"] += record.prefix_hits
            counters["num_preemptions"] += record.num_preemptions
            counters["prompt_tokens"] += num_prompt
            counters["prompt_tokens_cached"] += num_cached
            counters["generation_tokens"] += record.num_sampled_tokens
            histograms = self._histograms
            histograms["iteration_tokens_total"].observe(num_prompt + record.num_sampled_tokens)
            histograms["time_to_first_token_seconds"].observe_all(record.ttfts_s)
            histograms["inter_token_latency_seconds"].observe_all(record.token_gaps_s)

    def on_request(self, record: RequestRecord) -> None:
        with self._lock:
            self._begun.discard(record.request_id)
            self._totals.finished[_finished_reason(record.finish)] += 1
            self._observe_lengths(record)
            self._observe_times(record)
            self._observe_whole_request(record)

    def _begin_engine(self, record: StepRecord) -> None:
        # The first step that we are told of, or one that counts anew and so is another engine's: of the sequences of
        # the one before no end will come. What runs already is no newcomer.
        self._begun.clear()
        self._siblings.clear()
        arrived = set(record.arrived_ids)
        self._begun.update(work.request_id for work in record.work if work.request_id not in arrived)

    def _first_seen_cached(self, record: StepRecord) -> int:
        # Prompt tokens that the step's newcomers did not have to compute. (The step's own prefix_hits also
        # count what a preempted sequence finds again when it resumes.)
        num_cached = 0
        for work in record.work:
            if work.request_id not in self._begun:
                self._begun.add(work.request_id)
                num_cached += work.num_computed
        return num_cached

    def _observe_lengths(self, record: RequestRecord) -> None:
        histograms = self._histograms
        histograms["request_prompt_tokens"].observe(record.num_prompt_tokens)
        histograms["request_generation_tokens"].observe(record.num_output_tokens)
        histograms["request_num_preemptions"].observe(record.num_preemptions)
        if record.max_tokens is not None:
            histograms["request_params_max_tokens"].observe(record.max_tokens)
        if record.first_scheduled_s is not None:
            num_computed = record.num_prompt_tokens - record.num_cached_tokens
            histograms["request_prefill_kv_computed_tokens"].observe(num_computed)

    def _observe_times(self, record: RequestRecord) -> None:
        # accepted .. first scheduled .. first token .. last token .. finished; a sequence may end anywhere.
        histograms = self._histograms
        scheduled_s, first_s, last_s = record.first_scheduled_s, record.first_token_s, record.last_token_s
        end_s = record.finished_s
        histograms["e2e_request_latency_seconds"].observe(end_s - record.accepted_s)
        queue_end_s = end_s if scheduled_s is None else scheduled_s
        histograms["request_queue_time_seconds"].observe(queue_end_s - record.accepted_s)
        if scheduled_s is None:
            return
        histograms["request_inference_time_seconds"].observe(end_s - scheduled_s)
        prefill_end_s = end_s if first_s is None else first_s
        histograms["request_prefill_time_seconds"].observe(prefill_end_s - scheduled_s)
        if first_s is None or last_s is None:
            return
        histograms["request_decode_time_seconds"].observe(last_s - first_s)
        if record.num_output_tokens > 1:
            per_token_s = (last_s - first_s) / (record.num_output_tokens - 1)
            histograms["request_time_per_output_token_seconds"].observe(per_token_s)

    def _observe_whole_request(self, record: RequestRecord) -> None:
        most_tokens = record.num_output_tokens
        if record.n > 1:
            family = record.request_id.rpartition("-")[0]
            siblings = self._siblings.setdefault(family, _Siblings())
            siblings.num_ended += 1
            siblings.most_tokens = max(siblings.most_tokens, most_tokens)
            if siblings.num_ended < record.n:
                return
            most_tokens = siblings.most_tokens
            del self._siblings[family]
        self._histograms["request_params_n"].observe(record.n)
        self._histograms["request_max_num_generation_tokens"].observe(most_tokens)

    def collect(self) -> Iterator[Metric]:
        with self._lock:
            families = [*self._gauges(), *self._counters(), *self._histogram_families()]
        for family in families:
            yield family
            second_name = self._second_names.get(family.name.removeprefix("vllm:"))
            if second_name is not None:
                yield _renamed(family, f"vllm:{second_name}")

    def _gauges(self) -> Iterator[Metric]:
        stats = self._stats()
        used = stats.num_blocks_used / stats.num_blocks if stats.num_blocks else 0.0
        yield self._gauge("num_requests_running", "Sequences running.", stats.num_running)
        yield self._gauge("num_requests_waiting", "Sequences waiting.", stats.num_waiting)
        waiting = GaugeMetricFamily(
            "vllm:num_requests_waiting_by_reason",
            "Sequences waiting, by what they wait for.",
            labels=[*self._labels, "reason"],
        )
        for reason, count in (("capacity", stats.num_waiting), ("deferred", 0)):
            waiting.add_metric([*self._labels.values(), reason], count)
        yield waiting
        yield self._gauge("kv_cache_usage_perc", "Share of KV blocks in use, 0 to 1.", used)
        settings = {**self._cache_labels(), "engine": self._labels["engine"]}
        info = GaugeMetricFamily("vllm:cache_config_info", "Settings of the KV cache.", labels=list(settings))
        info.add_metric(list(settings.values()), 1)
        yield info

    def _gauge(self, name: str, text: str, value: float) -> Metric:
        family = GaugeMetricFamily(f"vllm:{name}", text, labels=list(self._labels))
        family.add_metric(list(self._labels.values()), value)
        return family

    def _counters(self) -> Iterator[Metric]:
        counters = self._totals.counters
        for name, text in _COUNTER_TEXTS.items():
            family = CounterMetricFamily(f"vllm:{name}", text, labels=list(self._labels))
            family.add_metric(list(self._labels.values()), counters[name])
            yield family
        num_cached = counters["prompt_tokens_cached"]
        sources = {"local_compute": counters["prompt_tokens"] - num_cached, "local_cache_hit": num_cached}
        sources["external_kv_transfer"] = 0  # none comes from another server
        yield self._by(
            "prompt_tokens_by_source", "Prompt tokens by where their KV came from.", "source", sources
        )
        yield self._by(
            "request_success", "Sequences ended, by reason.", "finished_reason", self._totals.finished
        )

    def _by(self, name: str, text: str, label: str, counts: Mapping[str, int]) -> Metric:
        family = CounterMetricFamily(f"vllm:{name}", text, labels=[*self._labels, label])
        for value, count in counts.items():
            family.add_metric([*self._labels.values(), value], count)
        return family

    def _histogram_families(self) -> Iterator[Metric]:
        for name, histogram in self._histograms.items():
            family = HistogramMetricFamily(f"vllm:{name}", _HISTOGRAM_TEXTS[name], labels=list(self._labels))
            family.add_metric(list(self._labels.values()), histogram.buckets(), histogram.sum)
            yield family


def _renamed(family: Metric, name: str) -> Metric:
    renamed = Metric(name, family.documentation, family.type)
    renamed.samples = [
        sample._replace(name=name + sample.name.removeprefix(family.name)) for sample in family.samples
    ]
    return renamed
