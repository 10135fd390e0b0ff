"""What OpenTelemetry's metrics say of requests, and that they reach a collector."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from noria.config.errors import ConfigError
from noria.config.observing import ObservingOptions
from noria.server import exporting
from noria.server.gen_ai_metrics import GenAIMetrics
from support_collector import Collector
from support_held import held
from support_paced import VOCAB_SIZE, paced_engine
from support_server import FakeEngine, Server, served_model, serving

MODEL = {"vocab_size": VOCAB_SIZE, "max_model_len": 256}
DURATION, FIRST, PER_TOKEN = (
    f"gen_ai.server.{name}" for name in ("request.duration", "time_to_first_token", "time_per_output_token")
)


class Told:
    """What the histograms hold."""

    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        self.provider = MeterProvider([self._reader])

    def points(self) -> dict[str, list[Any]]:
        data = self._reader.get_metrics_data()
        scopes = (
            []
            if data is None
            else [one for resource in data.resource_metrics for one in resource.scope_metrics]
        )
        return {metric.name: list(metric.data.data_points) for scope in scopes for metric in scope.metrics}

    def wait(self, server: Server, count: int = 1) -> dict[str, list[Any]]:
        """Once so many requests are counted: one may be a moment after its answer."""
        while True:
            is_told = sum(point.count for point in self.points().get(DURATION, [])) >= count
            server.get("/health")  # the loop that answers it is through with telling
            if is_told:
                return self.points()


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    found = Told()
    monkeypatch.setattr(exporting, "start_metrics", lambda _: GenAIMetrics(found.provider))
    return found


@pytest.fixture
def server(told: Told) -> Iterator[Server]:
    engine = paced_engine(step_s=0.001)
    with serving(engine, model=served_model(**MODEL), otlp_metrics_endpoint="http://127.0.0.1:1/") as running:
        yield running


def test_a_chat_is_counted_with_its_duration_first_token_and_pace(server: Server, told: Told) -> None:
    assert server.chat(max_tokens=5, ignore_eos=True).status_code == 200
    points = told.wait(server)
    assert {name: [point.count for point in found] for name, found in points.items()} == {
        DURATION: [1],
        FIRST: [1],
        PER_TOKEN: [1],
    }
    (duration,), (first,), (pace,) = points[DURATION], points[FIRST], points[PER_TOKEN]
    assert dict(duration.attributes) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "noria",
        "gen_ai.request.model": "wheel",
        "gen_ai.response.model": "wheel",
    }
    assert 0 < first.sum + 4 * pace.sum <= duration.sum  # five tokens: the first, and four after it


def test_each_choice_has_a_first_token_and_one_of_a_single_token_has_no_pace(
    server: Server, told: Told
) -> None:
    server.complete(prompt=[5, 6], n=3, max_tokens=1)
    points = told.wait(server)
    assert {name: sum(point.count for point in found) for name, found in points.items()} == {
        DURATION: 1,
        FIRST: 3,
    }


def test_a_refused_request_has_a_duration_that_names_the_error_and_nothing_else(
    server: Server, told: Told
) -> None:
    server.chat(temperature=-1)
    points = told.wait(server)
    assert list(points) == [DURATION]
    (point,) = points[DURATION]
    assert point.attributes["error.type"] == "400"


def test_a_client_that_leaves_is_counted(server: Server, told: Told) -> None:
    endless = {"prompt": [7], "max_tokens": 250, "ignore_eos": True, "stream": True}
    with held(server.engine, (3, lambda asked: asked.num_cancelled >= 1)):
        with server.client.stream("POST", "/v1/completions", json=endless) as response:
            next(response.iter_lines())
        points = told.wait(server)
    assert [point.count for point in points[DURATION]] == [1]


def test_buckets_are_those_of_the_conventions(server: Server, told: Told) -> None:
    server.complete(prompt=[5], max_tokens=2, ignore_eos=True)
    points = told.wait(server)
    bounds = {name: found[0].explicit_bounds for name, found in points.items()}
    assert [len(one) for one in bounds.values()] == [14, 16, 13]
    assert (bounds[DURATION][0], bounds[DURATION][-1]) == (0.01, 81.92)
    assert (bounds[FIRST][0], bounds[FIRST][-1]) == (0.001, 10.0)
    assert (bounds[PER_TOKEN][0], bounds[PER_TOKEN][-1]) == (0.01, 2.5)


def test_metrics_reach_a_collector_before_the_server_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "my-wheel")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
    collector = Collector()
    threading.Thread(target=collector.serve_forever, daemon=True).start()
    endpoint = f"http://127.0.0.1:{collector.server_port}/v1/metrics"
    try:
        with serving(FakeEngine(), otlp_metrics_endpoint=endpoint) as server:
            server.chat(temperature=-1)
    finally:
        collector.shutdown()
        collector.server_close()
    (resource,) = ExportMetricsServiceRequest.FromString(collector.bodies[-1]).resource_metrics
    names = {each.key: each.value.string_value for each in resource.resource.attributes}
    assert names["service.name"] == "my-wheel"
    metrics = [metric for scope in resource.scope_metrics for metric in scope.metrics]
    assert [metric.name for metric in metrics] == [DURATION]


def test_an_address_where_nobody_listens_is_told_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "20")  # ms
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", "0.05")
    with serving(FakeEngine(), otlp_metrics_endpoint="http://127.0.0.1:9/") as server:
        server.chat(temperature=-1)
        while "metrics do not reach" not in caplog.text:
            server.get("/health")
    told = [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]
    assert [record.name for record in told] == ["noria.server"]


def test_an_address_that_is_none_is_refused_with_an_example() -> None:
    with pytest.raises(ConfigError, match=r"http://127\.0\.0\.1:4318/v1/metrics; it is 'collector:4317'"):
        exporting.traces_of(ObservingOptions(otlp_metrics_endpoint="collector:4317"), "wheel")
