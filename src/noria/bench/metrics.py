"""Every figure of a run, from the outcomes of its requests. Definitions: docs/bench.md."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from noria.bench.outcome import Outcome, Status
from noria.bench.slo import Slo
from noria.bench.stats import CONFIDENCE, Interval, Values, effective_count, mean_interval, quantile_interval
from noria.bench.steady import warm_up_count
from noria.bench.target import Sample

QUANTILES = (50, 90, 95, 99)
_SHORTEST_WINDOW = 0.2  # of the run; a shorter one says nothing, so the whole run is taken


@dataclass(frozen=True, slots=True)
class Figure:
    """A quantity of many values, in seconds. count: of values. mean, quantiles: with intervals."""

    count: int
    num_effective: float
    mean: Interval
    std: float
    quantiles: dict[int, Interval]
    maximum: float


@dataclass(frozen=True, slots=True)
class Window:
    """Seconds of the run that rates and shares are of. num_warm_up: requests before it. why: in words."""

    start_s: float
    end_s: float
    num_warm_up: int
    why: str

    @property
    def span_s(self) -> float:
        return self.end_s - self.start_s

    def holds(self, time_s: float) -> bool:
        return self.start_s <= time_s <= self.end_s


@dataclass(frozen=True, slots=True)
class Load:
    """Of the engine, over the window. Shares are 0 to 1; None where the server does not tell."""

    kv_util_mean: float
    kv_util_p99: float
    kv_cached_mean: float | None
    preempt_rate: float | None  # preemptions by completed requests
    recompute_frac: float | None  # recomputed by all computed tokens
    prefix_hit_rate: float | None
    queue_wait_mean_s: float | None
    num_running_mean: float
    num_waiting_mean: float


@dataclass(frozen=True, slots=True)
class Summary:
    """counts: by status. rates: requests a second and tokens a second in the window. attainment: share of arrivals in
    the window that kept the limits; None without limits."""

    window: Window
    duration_s: float
    counts: dict[str, int]
    figures: dict[str, Figure]
    request_throughput: float
    output_throughput: float
    output_throughput_total: float
    input_throughput: float
    num_judged: int
    num_good: int
    goodput: float | None
    attainment: float | None
    attainment_interval: Interval | None
    deadline_miss_frac: float | None
    num_single_token: int
    load: Load | None


# name -> values of one request that was answered
_PER_REQUEST: dict[str, Callable[[Outcome], Iterable[float]]] = {
    "ttft": lambda one: (one.ttft_s,),
    "ttft_slo": lambda one: (one.ttft_slo_s,),
    "tpot": lambda one: () if one.tpot_s is None else (one.tpot_s,),
    "itl": lambda one: one.token_gaps_s(),
    "icl": lambda one: one.chunk_gaps_s(),
    "e2el": lambda one: (one.e2el_s,),
    "e2el_slo": lambda one: (one.e2el_slo_s,),
    "ntpot": lambda one: (one.e2el_s / max(1, one.num_output),),
    "queue_wait": lambda one: () if one.queue_wait_s is None else (one.queue_wait_s,),
}


def summarise(
    outcomes: Sequence[Outcome], slo: Slo, samples: Sequence[Sample] = (), confidence: float = CONFIDENCE
) -> Summary:
    """samples: their instants are seconds since the load began, as those of outcomes."""
    ordered = sorted(outcomes, key=lambda one: one.arrival_s)
    duration_s = max((one.end_s for one in ordered), default=0.0)
    window = find_window(ordered, duration_s)
    came = [one for one in ordered if window.holds(one.arrival_s) and one.status is not Status.CUT]
    answered = [one for one in came if one.is_ok]
    figures = {
        name: figure(np.array([value for one in answered for value in values(one)]), confidence)
        for name, values in _PER_REQUEST.items()
    }
    figures["send_lag"] = figure(np.array([one.send_lag_s for one in came]), confidence)
    span_s = window.span_s or math.nan
    good = [slo.is_good(one) for one in came]
    attained = mean_interval(np.array(good, dtype=np.float64), confidence) if slo.is_stated else None
    return Summary(
        window=window,
        duration_s=duration_s,
        counts={status.value: sum(one.status is status for one in ordered) for status in Status},
        figures={name: found for name, found in figures.items() if found.count},
        request_throughput=sum(one.is_ok and window.holds(one.end_s) for one in ordered) / span_s,
        output_throughput=tokens_within(ordered, window) / span_s,
        output_throughput_total=sum(one.num_output for one in ordered if one.is_ok)
        / (duration_s or math.nan),
        input_throughput=sum(one.num_prompt for one in ordered if one.chunk_s and window.holds(one.first_s))
        / span_s,
        num_judged=len(came),
        num_good=sum(good),
        goodput=sum(good) / span_s if slo.is_stated else None,
        attainment=attained.value if attained else None,
        attainment_interval=attained,
        deadline_miss_frac=deadline_miss_frac(came, slo),
        num_single_token=sum(one.is_ok and one.num_output <= 1 for one in came),
        load=_load(samples, window, answered),
    )


def find_window(ordered: Sequence[Outcome], duration_s: float) -> Window:
    """From the end of the warm-up to the last arrival, after which the run only drains."""
    answered = [one for one in ordered if one.is_ok]
    if not answered:
        return Window(0.0, duration_s, 0, "the whole run: nothing was answered")
    num_warm_up = warm_up_count(np.array([one.ttft_slo_s for one in answered]))
    start_s = answered[num_warm_up].arrival_s if num_warm_up else ordered[0].arrival_s
    end_s = ordered[-1].arrival_s
    if end_s - start_s < _SHORTEST_WINDOW * duration_s:
        return Window(0.0, duration_s, 0, "the whole run: without warm-up and drain too little is left")
    return Window(start_s, end_s, num_warm_up, "after the warm-up (MSER-5), before the drain")


def figure(values: Values, confidence: float = CONFIDENCE) -> Figure:
    if not len(values):
        return Figure(0, 0.0, mean_interval(values), math.nan, {}, math.nan)
    return Figure(
        count=len(values),
        num_effective=effective_count(values),
        mean=mean_interval(values, confidence),
        std=float(values.std()),
        quantiles={point: quantile_interval(values, point / 100, confidence) for point in QUANTILES},
        maximum=float(values.max()),
    )


def tokens_within(outcomes: Sequence[Outcome], window: Window) -> int:
    return sum(
        count
        for one in outcomes
        for moment_s, count in zip(one.chunk_s, one.chunk_tokens, strict=True)
        if window.holds(moment_s)
    )


def deadline_miss_frac(outcomes: Sequence[Outcome], slo: Slo) -> float | None:
    """Late tokens by tokens: token j is due at arrival + TTFT limit + (j - 1) TPOT limit."""
    if math.inf in (slo.ttft_s, slo.tpot_s):
        return None
    num_tokens = num_late = 0
    for one in outcomes:
        token = 0
        for moment_s, count in zip(one.chunk_s, one.chunk_tokens, strict=True):
            for _ in range(count):
                num_late += moment_s > one.arrival_s + slo.ttft_s + token * slo.tpot_s
                token += 1
        num_tokens += token
    return num_late / num_tokens if num_tokens else None


def _load(samples: Sequence[Sample], window: Window, answered: Sequence[Outcome]) -> Load | None:
    inside = [sample for sample in samples if window.holds(sample.time_s)]
    if len(inside) < 2:
        return None
    times = np.array([sample.time_s for sample in inside])
    spans = np.diff(times)
    used = _series(inside, "kv_util")[:-1]
    cached = None if inside[0].kv_cached is None else _mean_over(_series(inside, "kv_cached")[:-1], spans)
    return Load(
        kv_util_mean=_mean_over(used, spans),
        kv_util_p99=_weighted_quantile(used, spans, 0.99),
        kv_cached_mean=cached,
        preempt_rate=_ratio(_growth(inside, "preemptions"), float(len(answered))),
        recompute_frac=_ratio(_growth(inside, "recomputed_tokens"), _growth(inside, "computed_tokens")),
        prefix_hit_rate=_ratio(_growth(inside, "prefix_hits"), _growth(inside, "prefix_queries")),
        queue_wait_mean_s=_ratio(_growth(inside, "queue_wait_s"), _growth(inside, "queue_waits")),
        num_running_mean=_mean_over(_series(inside, "num_running")[:-1], spans),
        num_waiting_mean=_mean_over(_series(inside, "num_waiting")[:-1], spans),
    )


def _series(samples: Sequence[Sample], name: str) -> Values:
    return np.array([getattr(sample, name) for sample in samples], dtype=np.float64)


def _mean_over(values: Values, spans: Values) -> float:
    """sum(u dt) / sum(dt)."""
    return float(values @ spans / spans.sum())


def _weighted_quantile(values: Values, weights: Values, quantile: float) -> float:
    order = np.argsort(values)
    upto = np.cumsum(weights[order])
    place = int(np.searchsorted(upto, quantile * upto[-1]))
    return float(values[order][min(place, len(values) - 1)])


def _growth(samples: Sequence[Sample], name: str) -> float | None:
    first, last = getattr(samples[0], name), getattr(samples[-1], name)
    return None if first is None or last is None else float(last - first)


def _ratio(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole
