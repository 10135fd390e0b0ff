"""A span for each request that generates: what it says, whose child it is, and that it reaches a collector."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from noria.config.errors import ConfigError
from noria.config.observing import ObservingOptions
from noria.server import exporting
from noria.server.quiet_export import QuietSpans
from noria.server.spans import Spans as SpanReport
from noria.server.tracing import Tracing
from support_collector import Collector
from support_held import held
from support_paced import VOCAB_SIZE, paced_engine
from support_server import FakeEngine, Server, served_model, serving

SOURCE = Path(exporting.__file__).parents[2]
TRACE_ID, PARENT_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = {"traceparent": f"00-{TRACE_ID}-{PARENT_ID}-01"}
MODEL = {"vocab_size": VOCAB_SIZE, "max_model_len": 256}


class Spans:
    """The spans that have ended."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self._ended = threading.Condition()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def wait(self, server: Server, count: int = 1) -> list[Any]:
        """The spans once there are so many: a span may end a moment after its answer."""
        while len(self.exporter.get_finished_spans()) < count:
            server.get("/health")
        return list(self.exporter.get_finished_spans())


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Spans:
    found = Spans()
    monkeypatch.setattr(exporting, "start_spans", lambda _: SpanReport(found.provider))
    return found


@pytest.fixture
def traced(spans: Spans) -> Iterator[Server]:
    engine = paced_engine(step_s=0.001)
    with serving(engine, model=served_model(**MODEL), otlp_traces_endpoint="http://127.0.0.1:1/") as server:
        yield server


def test_a_chat_is_a_server_span_under_its_callers(traced: Server, spans: Spans) -> None:
    answer = traced.client.post(
        "/v1/chat/completions",
        json={
            "messages": [{"role": "user", "content": "turn"}],
            "max_tokens": 5,
            "temperature": 0.5,
            "top_p": 0.9,
            "seed": 7,
            "stop": ["never"],
        },
        headers=PARENT,
    ).json()
    (span,) = spans.wait(traced)
    assert (span.name, span.kind, span.status.status_code) == (
        "chat wheel",
        SpanKind.SERVER,
        StatusCode.UNSET,
    )
    assert (f"{span.context.trace_id:032x}", f"{span.parent.span_id:016x}") == (TRACE_ID, PARENT_ID)
    said = dict(span.attributes)
    latencies = {name: said.pop(name) for name in list(said) if ".latency." in name}
    assert said == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "noria",
        "gen_ai.request.model": "wheel",
        "gen_ai.request.max_tokens": 5,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.top_p": 0.9,
        "gen_ai.request.seed": 7,
        "gen_ai.request.stop_sequences": ("never",),
        "gen_ai.response.id": answer["id"],
        "gen_ai.response.model": "wheel",
        "gen_ai.response.finish_reasons": ("length",),
        "gen_ai.usage.input_tokens": answer["usage"]["prompt_tokens"],
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.usage.cache_read.input_tokens": 0,
        "gen_ai.usage.prompt_tokens": answer["usage"]["prompt_tokens"],
        "gen_ai.usage.completion_tokens": 5,
        "http.response.status_code": 200,
    }
    queue, prefill, decode = (
        latencies[f"gen_ai.latency.{name}"]
        for name in ("time_in_queue", "time_in_model_prefill", "time_in_model_decode")
    )
    assert latencies["gen_ai.latency.time_to_first_token"] == pytest.approx(queue + prefill)
    assert (
        queue + prefill + decode <= latencies["gen_ai.latency.e2e"] <= (span.end_time - span.start_time) / 1e9
    )


def test_a_stream_tells_when_its_first_chunk_came(traced: Server, spans: Spans) -> None:
    traced.chat(stream=True, max_tokens=5)
    (span,) = spans.wait(traced)
    assert span.attributes["gen_ai.request.stream"] is True
    first_s = span.attributes["gen_ai.response.time_to_first_chunk"]
    assert 0 < first_s <= (span.end_time - span.start_time) / 1e9
    assert span.parent is None


def test_choices_are_counted_and_prompts_only_once(traced: Server, spans: Spans) -> None:
    traced.complete(prompt=[[5, 6, 7], [8, 9]], n=2, max_tokens=3, ignore_eos=True)
    (span,) = spans.wait(traced)
    assert span.name == "text_completion wheel"
    assert span.attributes["gen_ai.request.choice.count"] == 2
    assert span.attributes["gen_ai.usage.input_tokens"] == 5
    assert span.attributes["gen_ai.usage.output_tokens"] == 12
    assert span.attributes["gen_ai.response.finish_reasons"] == ("length",) * 4


def test_no_text_is_told(traced: Server, spans: Spans) -> None:
    answer = traced.complete(prompt="a secret of mine", max_tokens=9).json()["choices"][0]["text"]
    (span,) = spans.wait(traced)
    everything = span.to_json()
    assert "secret" not in everything
    assert answer not in everything


def test_only_the_latest_names_where_they_are_asked_for(
    traced: Server, spans: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SEMCONV_STABILITY_OPT_IN", "http,gen_ai_latest_experimental")
    traced.complete(prompt=[5], max_tokens=2)
    (span,) = spans.wait(traced)
    assert "gen_ai.usage.output_tokens" in span.attributes
    assert not [name for name in span.attributes if ".latency." in name or "completion_tokens" in name]


def test_an_answer_that_ends_by_a_stop_string_is_told_as_a_stop(traced: Server, spans: Spans) -> None:
    text = traced.complete(prompt=[5, 6], max_tokens=30).json()["choices"][0]["text"]
    with held(traced.engine, (30, lambda asked: asked.num_cancelled >= 1)):
        traced.complete(prompt=[5, 6], max_tokens=200, stop=text[3:6])
    assert spans.wait(traced, 2)[1].attributes["gen_ai.response.finish_reasons"] == ("stop",)


def test_a_refused_request_has_a_span_that_names_the_error(traced: Server, spans: Spans) -> None:
    traced.chat(temperature=-1)
    (span,) = spans.wait(traced)
    assert (span.attributes["http.response.status_code"], span.attributes["error.type"]) == (400, "400")
    assert span.status.status_code is StatusCode.UNSET  # the client's fault, not the server's
    assert "gen_ai.usage.output_tokens" not in span.attributes


def test_other_routes_have_none(traced: Server, spans: Spans) -> None:
    traced.get("/v1/models")
    traced.get("/health")
    traced.get("/v1/chat/completions")
    traced.chat(max_tokens=1)
    (span,) = spans.wait(traced)
    assert span.name == "chat wheel"


def test_a_client_that_leaves_ends_its_span(traced: Server, spans: Spans) -> None:
    endless = {"prompt": [7], "max_tokens": 250, "ignore_eos": True, "stream": True}
    with held(traced.engine, (3, lambda asked: asked.num_cancelled >= 1)):
        with traced.client.stream("POST", "/v1/completions", json=endless) as response:
            next(response.iter_lines())
        spans.wait(traced)
    (span,) = spans.wait(traced)
    assert span.attributes["gen_ai.response.finish_reasons"] == ("abort",)


def test_nothing_is_kept_of_requests_that_have_ended(traced: Server, spans: Spans) -> None:
    for _ in range(3):
        traced.complete(prompt=[5, 6], max_tokens=2, n=2)
    spans.wait(traced, 3)
    (tracing,) = [each for each in traced.engine.recorder._listeners if isinstance(each, Tracing)]
    assert tracing._open == {}


def test_spans_reach_a_collector_before_the_server_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "my-wheel")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
    collector = Collector()
    threading.Thread(target=collector.serve_forever, daemon=True).start()
    endpoint = f"http://127.0.0.1:{collector.server_port}/v1/traces"
    try:
        with serving(FakeEngine(), otlp_traces_endpoint=endpoint) as server:
            server.chat(temperature=-1)
    finally:
        collector.shutdown()
        collector.server_close()
    (body,) = collector.bodies
    (resource,) = ExportTraceServiceRequest.FromString(body).resource_spans
    names = {each.key: each.value.string_value for each in resource.resource.attributes}
    assert names["service.name"] == "my-wheel"
    assert [span.name for scope in resource.scope_spans for span in scope.spans] == ["chat wheel"]


def test_an_address_that_is_none_is_refused_with_an_example() -> None:
    with pytest.raises(ConfigError, match=r"http://127\.0\.0\.1:4318/v1/traces; it is 'collector:4317'"):
        exporting.traces_of(ObservingOptions(otlp_traces_endpoint="collector:4317"), "wheel")


def test_without_the_extra_the_flag_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(ConfigError, match=r"pip install 'noria\[otel\]'"):
        exporting.traces_of(ObservingOptions(otlp_traces_endpoint="http://127.0.0.1:4318/"), "wheel")


def test_a_server_without_traces_loads_no_tracing_and_no_plotly() -> None:
    # The web framework loads OpenTelemetry's API by itself where it is installed; it is an empty shell.
    heavy = ("opentelemetry.sdk", "opentelemetry.exporter", "noria.server.tracing", "plotly")
    code = (
        "import sys, noria.server.app, noria.server.lifecycle, noria.cli.serve\n"
        f"print([name for name in sys.modules if name.startswith({heavy})])"
    )
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


class Scripted(SpanExporter):
    """One whose answers the test decides."""

    def __init__(self, *answers: SpanExportResult | Exception) -> None:
        self._answers = list(answers)

    def export(self, spans: Any) -> SpanExportResult:
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_a_collector_that_is_away_costs_one_line_and_its_return_another(
    caplog: pytest.LogCaptureFixture,
) -> None:
    away, back = SpanExportResult.FAILURE, SpanExportResult.SUCCESS
    answers = (back, away, ConnectionError("refused"), away, back, back, away)
    quiet = QuietSpans(Scripted(*answers), "http://127.0.0.1:1/v1/traces")
    with caplog.at_level("INFO", "noria.server"):
        results = [quiet.export([object(), object()]) for _ in answers]
    assert results == [away if isinstance(one, Exception) else one for one in answers]
    assert [record.getMessage() for record in caplog.records] == [
        "traces do not reach http://127.0.0.1:1/v1/traces; it is tried again, quietly",
        "traces reach http://127.0.0.1:1/v1/traces again; 6 spans are lost",
        "traces do not reach http://127.0.0.1:1/v1/traces; it is tried again, quietly",
    ]


def test_an_address_where_nobody_listens_is_told_once_however_much_is_traced(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")  # ms between batches
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "0.05")
    engine = paced_engine(step_s=0.001)
    with serving(engine, model=served_model(**MODEL), otlp_traces_endpoint="http://127.0.0.1:9/") as server:
        for _ in range(8):
            assert server.complete(max_tokens=2).status_code == 200
        while "do not reach" not in caplog.text:
            server.get("/health")
    told = [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]
    assert [record.name for record in told] == ["noria.server"]
