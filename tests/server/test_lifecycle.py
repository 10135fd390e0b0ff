"""Start, drain and stop are orderly for clients in any state."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import support_drain_child
from noria.config.errors import ConfigError
from support_sockets import listen

STREAM = {"prompt": "a", "max_tokens": 6, "stream": True}


class Child:
    """A server process whose engine steps when told to."""

    def __init__(self, shutdown_timeout_s: float) -> None:
        path = Path(support_drain_child.__file__)
        self.process = subprocess.Popen(
            [sys.executable, str(path), str(shutdown_timeout_s)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        port = self.process.stdout.readline().strip()
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60)

    def step(self, count: int) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n" * count)
        self.process.stdin.flush()

    def signal(self, number: signal.Signals) -> None:
        """Send it and wait until it has been taken."""
        self.process.send_signal(number)
        while self.client.get("/ready").status_code != 503:
            pass

    @contextlib.contextmanager
    def streaming(self) -> Iterator[Iterator[str]]:
        """The lines of a stream that has begun; 6 steps end it."""
        with self.client.stream("POST", "/v1/completions", json=STREAM) as answer:
            self.step(1)
            lines = (line for line in answer.iter_lines() if line)
            assert '"text"' in next(lines)
            yield lines

    def exit_code(self) -> int:
        return self.process.wait(timeout=60)


@contextlib.contextmanager
def child(shutdown_timeout_s: float) -> Iterator[Child]:
    running = Child(shutdown_timeout_s)
    try:
        yield running
    finally:
        running.client.close()
        running.process.kill()
        running.process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_streams_end_and_turns_newcomers_away(number: signal.Signals) -> None:
    with child(1000) as server, server.streaming() as lines:
        server.signal(number)
        refused = server.client.post("/v1/completions", json=STREAM)
        assert refused.status_code == 503
        assert int(refused.headers["retry-after"]) > 0
        assert refused.json()["error"]["type"] == "ServiceUnavailableError"
        assert server.client.get("/health").status_code == 200
        metrics = server.client.get("/metrics").text
        assert 'vllm:admission_rejections_total{model_name="wheel",reason="draining"} 1.0' in metrics
        server.step(5)
        rest = list(lines)
        assert len(rest) == 6
        assert '"finish_reason":"length"' in rest[-2]
        assert rest[-1] == "data: [DONE]"
        assert server.exit_code() == 0


def test_what_outlasts_the_timeout_is_told_so_in_its_stream() -> None:
    with child(0.2) as server, server.streaming() as lines:
        server.process.send_signal(signal.SIGTERM)
        error, done = lines
        assert "shutting down" in error
        assert '"code":503' in error
        assert done == "data: [DONE]"
        assert server.exit_code() == 0


def test_a_second_signal_ends_everything_at_once() -> None:
    with child(1000) as server, server.streaming() as lines:
        server.signal(signal.SIGTERM)
        server.process.send_signal(signal.SIGTERM)
        with pytest.raises(httpx.TransportError):
            list(lines)
        assert server.exit_code() == 0


def test_an_idle_connection_does_not_hold_the_end_up() -> None:
    with child(1000) as server:
        assert server.client.get("/ready").status_code == 200
        server.process.send_signal(signal.SIGTERM)
        assert server.exit_code() == 0


def test_an_address_that_is_taken_is_a_clear_error() -> None:
    with contextlib.closing(listen("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1 port {port}: .*--port"):
            listen("127.0.0.1", port)


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_an_ipv6_address_is_listened_on() -> None:
    with contextlib.closing(listen("::1", 0)) as listener:
        assert listener.family is socket.AF_INET6
