from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from noria.core.outputs import FinishReason
from noria.engine.in_process import InProcessClient
from noria.engine.messages import EngineStats, RequestRecord
from noria.server.engine_metrics import EngineMetrics
from noria.server.histogram import Histogram, token_counts
from support_engine import EOS, engine_config, loop_factory
from support_held import held
from support_ledger_runner import LedgerRunner
from support_server import AsgiCall, FakeEngine, Server, app_for, served_model, serving, serving_app

NAMES = Path(__file__).with_name("metric_names.txt")
MODEL = {"model_name": "wheel", "engine": "0"}


class Scrape:
    """The samples of /metrics."""

    def __init__(self, text: str) -> None:
        self.families = list(text_string_to_metric_families(text))
        self._values = {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in self.families
            for sample in family.samples
        }

    def __call__(self, name: str, **labels: str) -> float:
        return self._values[f"vllm:{name}", tuple(sorted({**MODEL, **labels}.items()))]

    def total(self, name: str) -> float:
        return sum(value for (found, _), value in self._values.items() if found == name)


def scrape(server: Server) -> Scrape:
    return Scrape(server.get("/metrics").text)


def real_engine(num_blocks: int = 64) -> InProcessClient:
    """The real loop and scheduler over a runner that makes tokens up. Blocks have four slots."""
    config = engine_config(num_blocks)
    runner = LedgerRunner(config.cache.block_size)
    return InProcessClient(loop_factory(config, runner), config)


@pytest.fixture
def running() -> Iterator[Server]:
    model = served_model(vocab_size=50, max_model_len=256)
    with serving(real_engine(), model=model) as server:
        yield server


def described(text: str) -> list[str]:
    """A line a series: family, type, its labels."""
    lines = set()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.endswith("_created"):
                continue
            labels = ",".join(sorted(sample.labels))
            lines.add(f"{sample.name}{{{labels}}} {family.type}")
    return sorted(line for line in lines if line.startswith(("vllm:", "http_")))


def test_names_and_labels_are_those_on_the_list(running: Server) -> None:
    running.complete(prompt=[5, 6], max_tokens=2)
    assert described(running.get("/metrics").text) == NAMES.read_text().splitlines()


def test_old_names_are_exported_where_they_are_asked_for_and_say_the_same() -> None:
    model = served_model(vocab_size=50, max_model_len=256)
    with serving(real_engine(), model=model, legacy_metrics=True) as server:
        for _ in range(2):
            server.complete(prompt=list(range(21)), max_tokens=4, ignore_eos=True)
        seen = scrape(server)
        lines = described(server.get("/metrics").text)
    old = sorted(set(lines) - set(NAMES.read_text().splitlines()))
    labels = "{engine,model_name}"
    assert old == [
        f"vllm:gpu_cache_usage_perc{labels} gauge",
        f"vllm:gpu_prefix_cache_hits_total{labels} counter",
        f"vllm:gpu_prefix_cache_queries_total{labels} counter",
        "vllm:time_per_output_token_seconds_bucket{engine,le,model_name} histogram",
        f"vllm:time_per_output_token_seconds_count{labels} histogram",
        f"vllm:time_per_output_token_seconds_sum{labels} histogram",
    ]
    assert seen("gpu_prefix_cache_hits_total") == seen("prefix_cache_hits_total") == 20
    assert seen("gpu_prefix_cache_queries_total") == seen("prefix_cache_queries_total") == 42
    assert seen("time_per_output_token_seconds_count") == 6
    for bound in ("0.01", "80.0", "+Inf"):
        expected = seen("inter_token_latency_seconds_bucket", le=bound)
        assert seen("time_per_output_token_seconds_bucket", le=bound) == expected


BUCKETS = {
    "e2e_request_latency_seconds": ".3 .5 .8 1 1.5 2 2.5 5 10 15 20 30 40 50 60 120 240 480 960 1920 7680",
    "time_to_first_token_seconds": ".001 .005 .01 .02 .04 .06 .08 .1 .25 .5 .75 1 2.5 5 7.5 10 20 40 80 160 640 2560",
    "inter_token_latency_seconds": ".01 .025 .05 .075 .1 .15 .2 .3 .4 .5 .75 1 2.5 5 7.5 10 20 40 80",
    "request_time_per_output_token_seconds": ".01 .025 .05 .075 .1 .15 .2 .3 .4 .5 .75 1 2.5 5 7.5 10 20 40 80",
    "iteration_tokens_total": "1 8 16 32 64 128 256 512 1024 2048 4096 8192 16384",
    "request_params_n": "1 2 5 10 20",
    "request_num_preemptions": "1 2 3 4 5 10 20",
    "request_prompt_tokens": "1 2 5 10 20 50 100 200",
    "request_prefill_kv_computed_tokens": "1 2 5 10 20 50 100 200",
}


@pytest.mark.parametrize("name", BUCKETS)
def test_buckets_are_those_that_dashboards_expect(running: Server, name: str) -> None:
    found = [
        sample.labels["le"]
        for family in scrape(running).families
        for sample in family.samples
        if sample.name == f"vllm:{name}_bucket"
    ]
    assert found == [*(str(float(bound)) for bound in BUCKETS[name].split()), "+Inf"]


def test_waiting_for_room_and_waiting_for_anything_are_told_apart(running: Server) -> None:
    seen = scrape(running)
    assert seen("num_requests_waiting_by_reason", reason="capacity") == 0
    assert seen("num_requests_waiting_by_reason", reason="deferred") == 0


def test_the_process_is_measured_too(running: Server) -> None:
    text = running.get("/metrics").text
    for name in ("process_resident_memory_bytes", "python_gc_collections_total"):
        assert f"\n{name}" in text


PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
NEW_PROMETHEUS = PROMETHEUS.replace("version=1.0.0", "version=1.0.0;escaping=allow-utf-8")


@pytest.mark.parametrize(
    ("accept", "is_openmetrics"),
    [
        ("application/openmetrics-text; version=1.0.0", True),
        (PROMETHEUS, True),
        (NEW_PROMETHEUS, True),
        ("text/plain;version=1.0.0;escaping=underscores,application/openmetrics-text", False),
        ("text/plain;version=0.0.4", False),
        ("*/*", False),
        ("", False),
    ],
)
def test_every_reader_gets_the_same_names_in_the_form_it_prefers(
    running: Server, accept: str, is_openmetrics: bool
) -> None:
    running.complete(prompt=[5, 6], max_tokens=2)
    answer = running.get("/metrics", headers={"accept": accept})
    kind = "application/openmetrics-text; version=1.0.0" if is_openmetrics else "text/plain; version=0.0.4"
    assert answer.headers["content-type"] == f"{kind}; charset=utf-8"
    assert answer.text.endswith("# EOF\n") == is_openmetrics
    parse = parse_openmetrics if is_openmetrics else text_string_to_metric_families
    names = {sample.name for family in parse(answer.text) for sample in family.samples}
    ours = {line.partition("{")[0] for line in NAMES.read_text().splitlines()}
    assert ours <= names


def test_counts_are_the_requests_and_sums_the_tokens(running: Server) -> None:
    for i in range(5):
        running.complete(prompt=list(range(20 + i)), max_tokens=4, n=1 + i % 2, ignore_eos=True)
    seen = scrape(running)
    num_requests, num_sequences = 5, 7
    for name in (
        "e2e_request_latency_seconds",
        "request_queue_time_seconds",
        "request_inference_time_seconds",
        "request_prefill_time_seconds",
        "request_decode_time_seconds",
        "request_time_per_output_token_seconds",
        "time_to_first_token_seconds",
        "request_prompt_tokens",
        "request_generation_tokens",
        "request_params_max_tokens",
        "request_num_preemptions",
        "request_prefill_kv_computed_tokens",
    ):
        assert seen(f"{name}_count") == num_sequences, name
    for name in ("request_params_n", "request_max_num_generation_tokens"):
        assert seen(f"{name}_count") == num_requests, name
    assert seen("request_params_n_sum") == num_sequences
    assert seen("request_max_num_generation_tokens_sum") == 4 * num_requests
    assert seen("request_success_total", finished_reason="length") == num_sequences
    assert seen("inter_token_latency_seconds_count") == 3 * num_sequences
    assert seen("generation_tokens_total") == 4 * num_sequences
    num_prompt = sum(20 + i for i in range(5) for _ in range(1 + i % 2))
    assert seen("prompt_tokens_total") == num_prompt
    assert seen("request_prompt_tokens_sum") == num_prompt
    assert seen("iteration_tokens_total_sum") == num_prompt + 4 * num_sequences


def test_cached_prompt_tokens_are_part_of_all_and_told_apart(running: Server) -> None:
    for _ in range(3):
        running.complete(prompt=list(range(21)), max_tokens=1)
    seen = scrape(running)
    cached = seen("prompt_tokens_cached_total")
    assert cached == 2 * 20
    assert seen("prompt_tokens_total") == 3 * 21
    assert seen("prompt_tokens_by_source_total", source="local_cache_hit") == cached
    assert seen("prompt_tokens_by_source_total", source="local_compute") == 3 * 21 - cached
    assert seen("prompt_tokens_by_source_total", source="external_kv_transfer") == 0
    assert seen("prefix_cache_hits_total") == cached
    assert seen("prefix_cache_queries_total") == 3 * 21
    assert seen("request_prefill_kv_computed_tokens_sum") == 3 * 21 - cached
    assert seen("iteration_tokens_total_sum") == 3 * 21 + 3


def test_preempted_sequences_do_not_count_their_prompts_twice() -> None:
    config = engine_config(num_blocks=12, max_num_seqs=8, max_model_len=40)
    client = InProcessClient(loop_factory(config, LedgerRunner(config.cache.block_size)), config)
    with serving(client, model=served_model(vocab_size=50, max_model_len=40)) as server:
        prompts = [[i, *range(7)] for i in range(8)]
        server.complete(prompt=prompts, max_tokens=20, ignore_eos=True)
        seen = scrape(server)
    assert seen("num_preemptions_total") > 0
    assert seen("request_num_preemptions_sum") == seen("num_preemptions_total")
    assert seen("prompt_tokens_total") == 8 * 8
    assert seen("iteration_tokens_total_sum") == 8 * 8 + 8 * 20


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"max_tokens": 3, "ignore_eos": True}, "length"),
        ({"max_tokens": 200, "logit_bias": {str(EOS): 100}, "stop_token_ids": list(range(50))}, "stop"),
    ],
)
def test_an_end_is_counted_by_its_reason(running: Server, fields: dict, reason: str) -> None:
    running.complete(prompt=[5, 6], **fields)
    counts = finished_reasons(scrape(running))
    assert counts == {**dict.fromkeys(counts, 0), reason: 1}


def finished_reasons(seen: Scrape) -> dict[str, float]:
    reasons = ("stop", "length", "abort", "error")
    return {reason: seen("request_success_total", finished_reason=reason) for reason in reasons}


def test_an_end_by_a_stop_string_counts_as_a_stop_while_another_stream_runs() -> None:
    engine = real_engine(num_blocks=1024)
    model = served_model(vocab_size=50, max_model_len=4096)
    endless = {"prompt": [7], "max_tokens": 4000, "ignore_eos": True, "stream": True}
    holds = (
        (3, lambda asked: asked.num_submitted >= 4),
        (30, lambda asked: asked.num_cancelled >= 3),  # by then their texts have the stop string
        (3, lambda asked: asked.num_cancelled >= 4),  # the endless one
    )
    with serving(engine, model=model) as server:
        text = server.complete(prompt=[5, 6], max_tokens=30, ignore_eos=True).json()["choices"][0]["text"]
        with held(engine, *holds):
            with server.client.stream("POST", "/v1/completions", json=endless) as other:
                next(other.iter_lines())
                server.complete(prompt=[5, 6], max_tokens=200, ignore_eos=True, stop=text[3:6], n=3)
            while len(engine.recorder.requests()) < 5:
                server.get("/health")
        assert finished_reasons(scrape(server)) == {"stop": 3, "length": 1, "abort": 1, "error": 0}


@pytest.mark.parametrize("finish", [FinishReason.ERROR, FinishReason.LOST])
def test_every_failure_counts_as_an_error(finish: FinishReason) -> None:
    with serving(FakeEngine()) as server:
        server.engine.recorder.record_request(replace(RECORD, finish=finish))
        assert finished_reasons(scrape(server)) == {"stop": 0, "length": 0, "abort": 0, "error": 1}


def test_gauges_fall_to_zero_after_aborts() -> None:
    engine = real_engine()
    app = app_for(engine, model=served_model(vocab_size=50, max_model_len=256))

    async def scenario() -> None:
        calls = [
            AsgiCall(app, "/v1/completions", {"prompt": [5, i], "max_tokens": 200, "ignore_eos": True})
            for i in range(20)
        ]
        await calls[0].until(lambda: engine.stats().num_running > 0 and asked.num_submitted == 20)
        for call in calls:
            call.leave()
        for call in calls:
            await call.finished()
        await calls[0].until(lambda: not (engine.stats().num_running or engine.stats().num_waiting))
        await calls[0].until(lambda: len(engine.recorder.requests()) == 20)

    with held(
        engine, (1, lambda asked: asked.num_submitted >= 20), (1, lambda asked: asked.num_cancelled >= 20)
    ) as asked:
        asyncio.run(scenario())
    with serving_app(app, engine) as server:
        seen = scrape(server)
    assert seen("num_requests_running") == seen("num_requests_waiting") == 0
    assert seen("kv_cache_usage_perc") == 0
    ended = [r.finish for r in engine.recorder.requests()]
    assert seen("request_success_total", finished_reason="abort") == ended.count(FinishReason.ABORT) == 20
    assert seen("e2e_request_latency_seconds_count") == 20


def test_http_requests_are_counted_by_route_and_class_and_probes_are_not() -> None:
    with serving(FakeEngine()) as server:
        server.chat()
        server.chat(stream=True)
        server.chat(temperature=-1)
        server.get("/v1/models/wheel")
        server.get("/v1/models/other")
        server.get(f"/invented/{'x' * 50}")
        server.client.request("PROPFIND", "/v1/models")
        server.get("/health")
        text = server.get("/metrics").text
    counts = {
        tuple(sample.labels[name] for name in ("method", "handler", "status")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "http_requests_total"
    }
    chat = "/v1/chat/completions"
    assert counts == {
        ("POST", chat, "2xx"): 2,
        ("POST", chat, "4xx"): 1,
        ("GET", "/v1/models/{name:path}", "2xx"): 1,
        ("GET", "/v1/models/{name:path}", "4xx"): 1,
        ("GET", "none", "4xx"): 1,
        ("other", "/v1/models", "4xx"): 1,
    }


def test_buckets_count_their_upper_bound_and_everything_below() -> None:
    histogram = Histogram((1.0, 2.0, 5.0))
    histogram.observe_all([0.5, 1.0, 1.5, 5.0, 7.0])
    assert histogram.buckets() == [("1.0", 2.0), ("2.0", 3.0), ("5.0", 4.0), ("+Inf", 5.0)]
    assert (histogram.count, histogram.sum) == (5, 15.0)


@pytest.mark.parametrize(
    ("highest", "bounds"), [(1, (1,)), (30, (1, 2, 5, 10, 20)), (100, (1, 2, 5, 10, 20, 50, 100))]
)
def test_token_buckets_go_to_the_context_length(highest: int, bounds: tuple[int, ...]) -> None:
    assert token_counts(highest) == bounds


RECORD = RequestRecord("r-0", 1.0, None, None, None, 3.0, 10, 0, 0, 0, 0, 5, 1, FinishReason.ABORT)


@pytest.mark.parametrize(
    ("record", "times"),
    [
        (RECORD, {"queue": 2.0}),
        (replace(RECORD, first_scheduled_s=1.5), {"queue": 0.5, "inference": 1.5, "prefill": 1.5}),
        (
            replace(RECORD, first_scheduled_s=1.5, first_token_s=2.0, last_token_s=2.75, num_output_tokens=4),
            {"queue": 0.5, "inference": 1.5, "prefill": 0.5, "decode": 0.75, "time_per_output_token": 0.25},
        ),
    ],
)
def test_a_sequence_is_measured_as_far_as_it_came(record: RequestRecord, times: dict[str, float]) -> None:
    stats = EngineStats(0, 0, 0, 0, 0, 0, True)
    metrics = EngineMetrics("wheel", 100, lambda: stats, dict)
    metrics.on_request(record)
    found = {
        family.name.removeprefix("vllm:request_").removesuffix("_seconds").removesuffix("_time"): sample.value
        for family in metrics.collect()
        for sample in family.samples
        if family.name.startswith("vllm:request_") and sample.name.endswith("_seconds_sum") and sample.value
    }
    assert found == times


def test_nothing_is_kept_of_sequences_that_have_ended(running: Server) -> None:
    metrics = next(one for one in running.engine.recorder._listeners if isinstance(one, EngineMetrics))
    for _ in range(5):
        running.complete(prompt=[5, 6], max_tokens=2, n=3)
    assert (len(metrics._begun), len(metrics._siblings)) == (0, 0)


def test_nothing_is_kept_of_sequences_that_died_with_their_engine(running: Server) -> None:
    (metrics,) = [each for each in running.engine.recorder._listeners if isinstance(each, EngineMetrics)]
    running.complete(prompt=[5, 6], max_tokens=2)
    (step, *_) = running.engine.recorder.steps()
    work = step.work[0]
    for number, name in ((100, "a"), (101, "b"), (0, "c")):
        metrics.on_step(replace(step, step=number, work=(replace(work, request_id=name),)))
    assert metrics._begun == {"c"}
