"""H02: health said 200 over a stuck or dead engine, or a busy one missed its probe and was restarted.

The kind: status reports progress seen, not existence.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from support_models import cached_checkpoint
from support_processes import Processes, Stream, processes, until

PROMPT = [5, 6, 7, 8]
HANG_S = 10.0  # after twice as long it would be ended
ENDLESS = 60_000  # tokens: more than any machine makes of them while a test lasts


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("model") / "model"
    shutil.copytree(cached_checkpoint("llama", max_position_embeddings=65_536), directory)
    return directory


@pytest.fixture(scope="module")
def server(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    flags = ("--model", model, "--num-gpu-blocks-override", 12_288, "--engine-hang-timeout", HANG_S)
    log = tmp_path_factory.mktemp("server") / "log"
    with processes(log, *flags, "--disable-uvicorn-access-log") as running:
        yield running.ready()


@contextmanager
def unreadable(model: Path) -> Iterator[None]:
    """An engine that begins to load it while the block lasts comes to no end of that."""
    config = model / "config.json"
    kept = config.rename(model.with_name("config.json"))
    os.mkfifo(config)  # who reads it waits until somebody writes, which nobody does
    try:
        yield
    finally:
        kept.replace(config)


def busy(server: Processes) -> list[Stream]:
    streams = [server.stream(PROMPT, ENDLESS) for _ in range(2)]
    return [stream.begun() for stream in streams]


@pytest.mark.parametrize("has_work", [False, True])
def test_a_stopped_engine_is_first_not_ready_then_not_healthy_and_recovers(
    server: Processes, has_work: bool
) -> None:
    expected = server.tokens(PROMPT, 20)
    streams = busy(server) if has_work else []
    engine = server.pids()["engine"]
    server.kill("engine", signal.SIGSTOP)
    stopped_s = time.monotonic()
    until(lambda: server.status("/ready") == 503)
    not_ready_s = time.monotonic()
    assert server.status("/health") == 200 or time.monotonic() - stopped_s > HANG_S
    until(lambda: server.status("/health") == 503)
    for stream in streams:
        assert [error["code"] for error in stream.end().errors] == [503]
        assert stream.data[-1] == "[DONE]"
    server.kill("engine", signal.SIGCONT)
    assert not_ready_s - stopped_s > HANG_S / 4
    until(lambda: server.status("/ready") == 200)
    assert server.status("/health") == 200
    assert server.pids()["engine"] == engine
    assert server.tokens(PROMPT, 20) == expected
    until(server.is_clean)


def test_an_engine_that_is_gone_is_not_healthy_until_the_next_is_there(
    server: Processes, model: Path
) -> None:
    expected = server.tokens(PROMPT, 20)
    streams = busy(server)
    engine = server.pids()["engine"]
    with unreadable(model):  # else the next one might be there before a look at this
        server.kill("engine")
        assert until(lambda: server.status("/health") == 503) < HANG_S  # not as one that hangs
        for stream in streams:
            assert [error["code"] for error in stream.end().errors] == [503]
    until(lambda: server.pids().get("engine", engine) != engine)
    server.kill("engine")  # which waits for what nobody writes
    until(lambda: server.status("/ready") == 200)
    assert server.status("/health") == 200
    assert server.pids()["engine"] != engine
    assert server.tokens(PROMPT, 20) == expected


def test_probes_are_answered_quickly_while_300_requests_are_in_flight(server: Processes) -> None:
    body = {"prompt": PROMPT, "max_tokens": 100, "ignore_eos": True, "temperature": 0}
    took_s = []
    with (
        httpx.Client(base_url=server.url, timeout=120, limits=httpx.Limits(max_connections=None)) as client,
        ThreadPoolExecutor(300) as threads,
    ):
        start_s = time.monotonic()
        asked = [threads.submit(client.post, "/v1/completions", json=body) for _ in range(300)]
        while not all(future.done() for future in asked):
            probed_s = time.monotonic()
            assert (server.status("/health"), server.status("/ready")) == (200, 200)
            took_s.append((time.monotonic() - probed_s) / 2)
        all_s = time.monotonic() - start_s
    assert {future.result().status_code for future in asked} == {200}
    assert len(took_s) >= 20
    # The order of magnitude: probes that had to wait for requests to end would take as long as some of them do. A few
    # may have met a moment at which the machine did something else.
    assert sorted(took_s)[3 * len(took_s) // 4] < all_s / 10
