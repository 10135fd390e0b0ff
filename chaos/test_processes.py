"""Processes that are killed or stopped while streams run."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from support_chaos import FLAGS, HANG_S, NUM_TOKENS, PROMPT, Measured
from support_embedded import embedded_model
from support_processes import Processes, Stream, is_alive, processes, until

LONG = 1000  # tokens of a stream that does not end by itself
HANGS = "hangs; ending it"  # in the log


def check_cut(streams: list[Stream]) -> None:
    """Each has got one error frame and [DONE]."""
    for stream in streams:
        stream.end()
        assert stream.error is None
        assert [error["code"] for error in stream.errors] == [503]
        assert stream.data[-1] == "[DONE]"
        assert '"error"' in stream.data[-2]


def time_to_answer(server: Processes, start_s: float, undisturbed: list[int]) -> float:
    """Seconds from `start_s` until a request is served again, with the same tokens as ever."""
    until(lambda: server.status("/ready") == 200)
    assert server.tokens(PROMPT, NUM_TOKENS) == undisturbed
    return time.monotonic() - start_s


def test_the_engine_is_killed(server: Processes, undisturbed: list[int], measured: Measured) -> None:
    streams = [server.stream(PROMPT, LONG).begun() for _ in range(4)]
    killed, num_hangs = server.pids()["engine"], server.text().count(HANGS)
    start_s = time.monotonic()
    server.kill("engine")
    # Whoever looks too late finds the next one.
    until(lambda: server.status("/health") == 503 or server.pids().get("engine", killed) != killed)
    measured.seconds("health 503 after", time.monotonic() - start_s)
    check_cut(streams)
    assert server.text().count(HANGS) == num_hangs  # its end was seen, and not its silence
    measured.seconds("streams told after", time.monotonic() - start_s)
    measured.seconds("served again after", time_to_answer(server, start_s, undisturbed))


def test_the_engine_is_stopped_and_goes_on(
    server: Processes, undisturbed: list[int], measured: Measured
) -> None:
    streams = [server.stream(PROMPT, LONG).begun() for _ in range(4)]
    engine = server.pids()["engine"]
    start_s = time.monotonic()
    server.kill("engine", signal.SIGSTOP)
    until(lambda: server.status("/ready") == 503)
    measured.seconds("ready 503 after", time.monotonic() - start_s)
    until(lambda: server.status("/health") == 503)
    # It may have moved last a little before it was stopped.
    assert measured.seconds("health 503 after", time.monotonic() - start_s) > 0.75 * HANG_S
    check_cut(streams)
    start_s = time.monotonic()
    server.kill("engine", signal.SIGCONT)
    measured.seconds("served again after", time_to_answer(server, start_s, undisturbed))
    assert server.pids()["engine"] == engine


def test_the_engine_is_stopped_for_good(
    server: Processes, undisturbed: list[int], measured: Measured
) -> None:
    streams = [server.stream(PROMPT, LONG).begun() for _ in range(2)]
    engine = server.pids()["engine"]
    start_s = time.monotonic()
    server.kill("engine", signal.SIGSTOP)
    check_cut(streams)
    until(lambda: not is_alive(engine))
    measured.seconds("ended after", time.monotonic() - start_s)
    measured.seconds("served again after", time_to_answer(server, start_s, undisturbed))
    assert server.pids()["engine"] != engine


def streams_of_both(server: Processes, num_tokens: int) -> list[Stream]:
    """Streams that have begun, some on each API process. The first may end before the last begins."""
    before = server.descriptors()
    streams: list[Stream] = []
    have_some: set[str] = set()
    while len(have_some) < 2:
        assert len(streams) < 14, "one API process takes everything"
        streams.append(server.stream(PROMPT, num_tokens))
        until(lambda: streams[-1].data or streams[-1].is_over)
        now = server.descriptors()
        have_some |= {name for name in ("api-0", "api-1") if now[name] > before[name]}
    return streams


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_an_api_process_is_lost(
    server: Processes, undisturbed: list[int], measured: Measured, number: signal.Signals
) -> None:
    streams = streams_of_both(server, NUM_TOKENS)
    lost = server.pids()["api-0"]
    start_s = time.monotonic()
    server.kill("api-0", number)
    until(lambda: not is_alive(lost))
    measured.seconds("ended after", time.monotonic() - start_s)
    until(lambda: server.pids().get("api-0", lost) != lost)
    for stream in streams:
        stream.end()
    whole = [stream for stream in streams if stream.error is None]
    assert all(stream.is_whole and stream.token_ids == undisturbed for stream in whole)
    measured.note(f"{len(whole)} of {len(streams)} streams whole")
    until(lambda: all(server.is_clean() for _ in range(4)))
    measured.seconds("clean after", time.monotonic() - start_s)


def test_both_api_processes_are_killed(server: Processes, undisturbed: list[int], measured: Measured) -> None:
    # None may end by itself while the process that was lost before gets ready again.
    streams = streams_of_both(server, LONG)
    start_s = time.monotonic()
    for name in ("api-0", "api-1"):
        server.kill(name)
    assert all(stream.end().error is not None for stream in streams)
    measured.seconds("served again after", time_to_answer(server, start_s, undisturbed))


def test_the_supervisor_is_killed(tmp_path: Path, measured: Measured) -> None:
    with processes(tmp_path / "log", "--model", embedded_model(), *FLAGS) as server:
        stream = server.ready().stream(PROMPT, LONG).begun()
        pids = server.pids().values()
        assert len(pids) == 2
        start_s = time.monotonic()
        server.process.kill()
        until(lambda: not any(map(is_alive, pids)))
        measured.seconds("all gone after", time.monotonic() - start_s)
        assert not stream.end().is_whole
