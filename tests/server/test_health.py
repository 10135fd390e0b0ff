from __future__ import annotations

from dataclasses import replace

import pytest

from noria.engine.heartbeat import Heartbeat
from noria.engine.messages import EngineStats
from noria.server.limits import Limits
from support_server import FakeEngine, serving

IDLE = EngineStats(0, 0, 0, 8, 0, 0, True)
BUSY = replace(IDLE, num_running=1)


class Bench:
    """A heartbeat with its clock and its engine in the test's hand."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.stats = IDLE
        self.heartbeat = Heartbeat(lambda: self.stats, lambda: self.now_s)

    def after(self, seconds: float, num_open: int = 0) -> bool:
        """The judgement after a time in which the server looked every second."""
        for _ in range(int(seconds)):
            self.now_s += 1
            verdict = self.heartbeat.silence_s(num_open) <= 5
        return verdict


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_an_idle_engine_is_alive_for_ever(bench: Bench) -> None:
    assert bench.after(1000)


def test_a_busy_engine_is_alive_while_it_steps(bench: Bench) -> None:
    for step in range(20):
        bench.stats = replace(BUSY, step=step)
        assert bench.after(4)


@pytest.mark.parametrize("stats", [BUSY, replace(IDLE, num_waiting=1)])
def test_an_engine_with_work_that_does_not_step_is_hung_and_may_recover(
    bench: Bench, stats: EngineStats
) -> None:
    bench.stats = stats
    bench.after(1)
    assert bench.after(5)
    assert not bench.after(1)
    assert not bench.after(100)
    bench.stats = replace(stats, step=1)
    assert bench.after(1)


def test_requests_that_never_reached_the_engines_books_count_as_work(bench: Bench) -> None:
    bench.after(1)
    assert not bench.after(6, num_open=1)


def test_work_within_a_step_is_progress(bench: Bench) -> None:
    for progress in range(20):
        bench.stats = replace(BUSY, progress=progress)
        assert bench.after(4)


def test_an_idle_engine_whose_process_gives_no_sign_of_life_is_hung(bench: Bench) -> None:
    bench.stats = replace(IDLE, beat_age_s=4.0)
    assert bench.after(100)
    bench.stats = replace(IDLE, beat_age_s=6.0)
    assert not bench.after(1)


def test_a_dead_engine_is_not_alive(bench: Bench) -> None:
    bench.stats = replace(IDLE, is_alive=False)
    assert not bench.after(1)


def test_work_that_begins_after_a_long_silence_is_no_hang(bench: Bench) -> None:
    bench.now_s += 3600  # nobody looked
    bench.stats = BUSY
    assert bench.heartbeat.silence_s(1) == 0


def test_probes_tell_a_living_engine_from_a_dead_one() -> None:
    engine = FakeEngine()
    with serving(engine) as server:
        for path in ("/health", "/ready"):
            answer = server.get(path)
            assert (answer.status_code, answer.content) == (200, b"")
        assert server.get("/ping").json() == {}
        assert server.client.post("/ping").json() == {}
        engine.is_alive = False
        for path in ("/health", "/ready"):
            answer = server.get(path)
            assert (answer.status_code, answer.content) == (503, b"")
        assert server.get("/ping").status_code == 503


def test_open_streams_end_with_an_error_when_the_engine_dies() -> None:
    engine = FakeEngine(is_auto=False)
    with (
        serving(engine, Limits()) as server,
        server.client.stream("POST", "/v1/completions", json={"prompt": "a", "stream": True}) as answer,
    ):
        engine.wait_for(lambda: engine.submitted)
        engine.is_alive = False
        error, done = (line for line in answer.iter_lines() if line)
        assert '"code":503' in error
        assert done == "data: [DONE]"


def test_the_version_is_told() -> None:
    with serving(FakeEngine()) as server:
        assert set(server.get("/version").json()) == {"version"}


def test_an_engine_that_stands_still_gets_no_new_work_before_it_counts_as_hung() -> None:
    engine = FakeEngine()
    with serving(engine, engine_hang_timeout=1000) as server:
        engine.beat_age_s = 600
        assert server.get("/health").status_code == 200
        assert server.get("/ready").status_code == 503
        refused = server.complete()
        assert refused.status_code == 503
        assert int(refused.headers["retry-after"]) > 0
        engine.beat_age_s = 0
        assert server.complete().status_code == 200


def test_the_sizes_of_another_engine_in_its_place_are_what_clients_are_told_and_held_to() -> None:
    with serving(FakeEngine()) as server:
        assert server.complete(max_tokens=60).status_code == 200
        server.server.follow(16, {"block_size": "16", "num_gpu_blocks": "1"})
        assert server.get("/v1/models").json()["data"][0]["max_model_len"] == 16
        assert server.post("/tokenize", prompt="a").json()["max_model_len"] == 16
        assert 'num_gpu_blocks="1"' in server.get("/metrics").text
        refused = server.complete(max_tokens=60)
        assert refused.status_code == 400
        assert "maximum context length is 16 tokens" in refused.json()["error"]["message"]
