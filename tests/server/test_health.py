from __future__ import annotations

from dataclasses import replace

import pytest

from noria.engine.messages import EngineStats
from noria.server.health import Heartbeat
from noria.server.limits import Limits
from support_server import FakeEngine, serving

IDLE = EngineStats(0, 0, 0, 8, 0, 0, True)
BUSY = replace(IDLE, num_running=1)


class Bench:
    """A heartbeat with its clock and its engine in the test's hand."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.stats = IDLE
        self.heartbeat = Heartbeat(lambda: self.stats, 5.0, lambda: self.now_s)

    def after(self, seconds: float, num_open: int = 0) -> bool:
        """The judgement after a time in which the server looked every second."""
        for _ in range(int(seconds)):
            self.now_s += 1
            verdict = self.heartbeat.is_alive(num_open)
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


def test_a_dead_engine_is_not_alive(bench: Bench) -> None:
    bench.stats = replace(IDLE, is_alive=False)
    assert not bench.after(1)


def test_work_that_begins_after_a_long_silence_is_no_hang(bench: Bench) -> None:
    bench.now_s += 3600  # nobody looked
    bench.stats = BUSY
    assert bench.heartbeat.is_alive(1)


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
