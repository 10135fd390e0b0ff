"""H01: SIGTERM cut running requests at once, so that a rolling update dropped work.

The kind: start, drain and stop are orderly for clients in any state.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from support_models import cached_checkpoint
from support_processes import LIMIT_S, Processes, is_alive, processes, until

PROMPT = [5, 6, 7, 8]
NUM_STREAMS = 5
LONG = 2500  # tokens: streams of them are still there when the last one has begun
ENDLESS = 60_000  # tokens: more than any machine makes of them while a test lasts


@contextmanager
def server(directory: Path, *flags: object) -> Iterator[Processes]:
    model = cached_checkpoint("llama", max_position_embeddings=65_536)
    blocks = NUM_STREAMS * 65_536 // 16
    with processes(
        directory / "log", "--model", model, "--num-gpu-blocks-override", blocks, *flags
    ) as running:
        yield running


def client() -> httpx.Client:
    return httpx.Client(timeout=LIMIT_S)


def refusal(running: Processes, newcomer: httpx.Client) -> httpx.Response:
    """The answer to a newcomer, once the server drains."""
    until(lambda: newcomer.get(f"{running.url}/ready").status_code == 503)
    return newcomer.post(f"{running.url}/v1/completions", json={"prompt": PROMPT, "max_tokens": 1})


def test_what_runs_ends_whole_and_newcomers_are_turned_away(tmp_path: Path) -> None:
    flags = ("--shutdown-timeout", 1000, "--engine-hang-timeout", 1000)
    with server(tmp_path, *flags) as running, client() as newcomer:
        running.ready()
        newcomer.get(f"{running.url}/health")  # a connection of its own: no new ones are taken later
        streams = [running.stream(PROMPT, LONG) for _ in range(NUM_STREAMS)]
        for stream in streams:
            stream.begun()
        running.kill("engine", signal.SIGSTOP)  # they run, for as long as it takes to look
        pids = list(running.pids().values())
        running.process.send_signal(signal.SIGTERM)
        refused = refusal(running, newcomer)
        assert refused.status_code == 503
        assert int(refused.headers["retry-after"]) > 0
        assert not any(stream.is_over for stream in streams)
        running.kill("engine", signal.SIGCONT)
        until(lambda: all(stream.is_over for stream in streams))
        assert all(stream.is_whole for stream in streams)
        assert {len(stream.token_ids) for stream in streams} == {LONG}
        assert running.exit_code() == 0
        until(lambda: not any(map(is_alive, pids)))


def test_what_does_not_end_in_time_is_told_why(tmp_path: Path) -> None:
    with server(tmp_path, "--shutdown-timeout", 0.5) as running:
        streams = [running.ready().stream(PROMPT, ENDLESS) for _ in range(NUM_STREAMS)]
        for stream in streams:
            stream.begun()
        running.process.send_signal(signal.SIGTERM)
        for stream in streams:
            [error] = stream.end().errors
            assert (error["code"], error["type"]) == (503, "ServiceUnavailableError")
            assert "shutting down" in error["message"]
            assert stream.data[-1] == "[DONE]"
        assert running.exit_code() == 0


def test_a_second_signal_ends_everything_at_once(tmp_path: Path) -> None:
    with server(tmp_path, "--shutdown-timeout", 1000) as running, client() as newcomer:
        stream = running.ready().stream(PROMPT, ENDLESS).begun()
        newcomer.get(f"{running.url}/health")
        pids = list(running.pids().values())
        running.process.send_signal(signal.SIGTERM)
        assert refusal(running, newcomer).status_code == 503
        running.process.send_signal(signal.SIGTERM)
        assert running.exit_code() == 128 + signal.SIGTERM
        assert not stream.end().is_whole
        until(lambda: not any(map(is_alive, pids)))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_whose_model_still_loads_ends_at_once(tmp_path: Path, number: signal.Signals) -> None:
    model = tmp_path / "model"
    shutil.copytree(cached_checkpoint("llama"), model)
    (model / "config.json").unlink()
    os.mkfifo(model / "config.json")  # who reads it waits until somebody writes, which nobody does
    with processes(tmp_path / "log", "--model", model) as running:
        until(lambda: "engine" in running.pids())
        pids = list(running.pids().values())
        running.process.send_signal(number)
        assert running.exit_code() == 0
        assert "listening" not in running.text()
        assert "Traceback" not in running.text()
        until(lambda: not any(map(is_alive, pids)))


def test_connections_without_a_request_hold_nothing_up(tmp_path: Path) -> None:
    with server(tmp_path, "--shutdown-timeout", 1000) as running, client() as idle:
        running.ready()
        assert idle.get(f"{running.url}/health").status_code == 200
        address = urlsplit(running.url)
        with (
            closing(socket.create_connection((address.hostname, address.port))),
            closing(socket.create_connection((address.hostname, address.port))) as half,
        ):
            half.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Le")
            running.process.send_signal(signal.SIGTERM)
            assert running.exit_code() == 0
