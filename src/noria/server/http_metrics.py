"""Measurements of the HTTP side: requests, durations, sizes, refusals."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from noria.config.errors import Refusal
from noria.server.histogram import Histogram

_DURATIONS = (0.1, 0.5, 1.0)
_FINE_DURATIONS = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0,
    7.5, 10.0, 30.0, 60.0,
)  # fmt: skip
_METHODS = frozenset(("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"))

# Why a request was turned away with a 503, or over the limits of its key with a 429.
REJECTION_REASONS = ("draining", "engine_failed", "threads_busy", *(reason.value for reason in Refusal))


@dataclass
class _Sizes:
    count: int = 0
    total: int = 0

    def add(self, num_bytes: int) -> None:
        self.count += 1
        self.total += num_bytes


@dataclass
class _Totals:
    requests: dict[tuple[str, str, str], int] = field(default_factory=lambda: defaultdict(int))
    durations: dict[tuple[str, str], Histogram] = field(default_factory=dict)
    request_sizes: dict[str, _Sizes] = field(default_factory=lambda: defaultdict(_Sizes))
    response_sizes: dict[str, _Sizes] = field(default_factory=lambda: defaultdict(_Sizes))
    rejections: dict[str, int] = field(default_factory=lambda: dict.fromkeys(REJECTION_REASONS, 0))


class HttpMetrics(Collector):
    """Filled and collected on the event loop's thread."""

    def __init__(self, model_name: str) -> None:
        self._model_name = model_name
        self._totals = _Totals()
        self._fine_durations = Histogram(_FINE_DURATIONS)

    def count_rejection(self, reason: str) -> None:
        """A request refused before any work was done for it; `reason` is one of REJECTION_REASONS."""
        self._totals.rejections[reason] += 1

    def observe(
        self,
        *,
        method: str,
        handler: str,
        status: int,
        duration_s: float,
        request_bytes: int,
        response_bytes: int,
    ) -> None:
        """One answered request. handler: the route's template. Durations run to the answer's last byte."""
        method = method if method in _METHODS else "other"
        totals = self._totals
        totals.requests[method, handler, f"{status // 100}xx"] += 1
        totals.durations.setdefault((method, handler), Histogram(_DURATIONS)).observe(duration_s)
        totals.request_sizes[handler].add(request_bytes)
        totals.response_sizes[handler].add(response_bytes)
        self._fine_durations.observe(duration_s)

    def collect(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            "http_requests", "HTTP requests by status class.", labels=["method", "handler", "status"]
        )
        for labels, count in self._totals.requests.items():
            requests.add_metric(list(labels), count)
        yield requests
        durations = HistogramMetricFamily(
            "http_request_duration_seconds",
            "Time from a request's headers to its answer's last byte.",
            labels=["method", "handler"],
        )
        for names, histogram in self._totals.durations.items():
            durations.add_metric(list(names), histogram.buckets(), histogram.sum)
        yield durations
        fine = self._fine_durations
        yield HistogramMetricFamily(
            "http_request_duration_highr_seconds",
            "The same over all routes, in finer buckets.",
            buckets=fine.buckets(),
            sum_value=fine.sum,
        )
        yield _summary("http_request_size_bytes", "Bytes of request bodies.", self._totals.request_sizes)
        yield _summary("http_response_size_bytes", "Bytes of answers' bodies.", self._totals.response_sizes)
        rejections = CounterMetricFamily(
            "vllm:admission_rejections",
            "Requests turned away before any work was done for them.",
            labels=["model_name", "reason"],
        )
        for reason, count in self._totals.rejections.items():
            rejections.add_metric([self._model_name, reason], count)
        yield rejections


def _summary(name: str, text: str, sizes: dict[str, _Sizes]) -> Metric:
    family = SummaryMetricFamily(name, text, labels=["handler"])
    for handler, size in sizes.items():
        family.add_metric([handler], size.count, size.total)
    return family
