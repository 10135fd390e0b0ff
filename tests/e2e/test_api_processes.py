"""Two API processes before one engine, as a client sees them: one server."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from support_models import write_checkpoint

ENVIRONMENT = {**os.environ, "PYTHONUNBUFFERED": "1"}
# As long as no test waits: what is to be there while something else happens must not end by itself.
LENGTH = 131_072
SMALL = ["--max-model-len", LENGTH, "--num-gpu-blocks-override", LENGTH // 16, "--block-size", 16]
SMALL += ["--served-model-name", "tiny", "--max-unread-tokens", LENGTH]
LONG = {"model": "tiny", "prompt": "the fox", "max_tokens": 100_000, "ignore_eos": True, "stream": True}
_DEADLINE_S = 60.0


class Connection:
    """One that stays open, and so stays with one process."""

    def __init__(self, port: int) -> None:
        self._client = http.client.HTTPConnection("127.0.0.1", port, timeout=_DEADLINE_S)

    def open(self, path: str, body: Any = None, **headers: str) -> http.client.HTTPResponse:
        content = None if body is None else json.dumps(body)
        sent = {"content-type": "application/json"}
        sent |= {name.replace("_", "-"): text for name, text in headers.items()}
        self._client.request("GET" if body is None else "POST", path, content, sent)
        answer = self._client.getresponse()
        assert answer.status == 200, answer.read()
        return answer

    def json(self, path: str, body: Any = None) -> Any:
        return json.loads(self.open(path, body).read())

    def metrics(self) -> dict[str, float]:
        """Series by name and the values of their labels, in the order of the labels' names."""
        families = text_string_to_metric_families(self.open("/metrics").read().decode())
        return {
            ",".join((sample.name, *sample.labels.values())): sample.value
            for family in families
            for sample in family.samples
        }

    def process(self) -> str:
        """The name of the process at the other end: its garbage collector is measured in it alone."""
        [name] = {series.rpartition(",")[2] for series in self.metrics() if series.startswith("python_gc")}
        return name

    def close(self) -> None:
        self._client.close()


class Server:
    """`noria serve --api-server-count 2`."""

    def __init__(self, model: Path) -> None:
        command = [sys.executable, "-m", "noria", "serve", str(model), "--port", "0", *map(str, SMALL)]
        command += ["--api-server-count", "2"]
        self._child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
        self._watchdog = threading.Timer(900, self._child.kill)  # so that a silent server ends the test
        self._watchdog.start()
        self.lines: list[str] = []
        assert self._child.stderr is not None
        self.port = 0
        num_listening = 0
        while num_listening < 2:
            line = self._child.stderr.readline()
            assert line, "".join(self.lines)
            self.lines.append(line)
            found = re.search(r"listening on http://127\.0\.0\.1:(\d+)", line)
            if found:
                num_listening += 1
                self.port = int(found[1])
        self._reader = threading.Thread(target=self.lines.extend, args=(self._child.stderr,), daemon=True)
        self._reader.start()

    def connection_to(self, process: str) -> Connection:
        """A fresh connection that this process has accepted."""
        deadline_s = time.monotonic() + _DEADLINE_S
        while time.monotonic() < deadline_s:
            connection = Connection(self.port)
            if connection.process() == process:
                return connection
            connection.close()
        raise AssertionError(f"{process} accepts no connection")

    def pid(self, process: str) -> int:
        for path in Path("/proc").glob("[0-9]*"):
            try:
                parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
                if parent == self._child.pid and (path / "comm").read_text().strip() == f"noria-{process}":
                    return int(path.name)
            except OSError:
                continue  # it has ended meanwhile
        raise AssertionError(f"there is no process {process}")

    def stop(self, meanwhile: Callable[[], None] = lambda: None) -> int:
        """The exit status. meanwhile: what to do while it drains."""
        try:
            self._child.send_signal(signal.SIGTERM)
            meanwhile()
            return self._child.wait(timeout=120)
        finally:
            self._watchdog.cancel()
            self._child.kill()
            self._child.wait()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small Llama with random weights that takes long texts."""
    directory = tmp_path_factory.mktemp("long")
    write_checkpoint(directory, "llama", max_position_embeddings=LENGTH)
    return directory


@pytest.fixture(scope="module")
def server(model: Path) -> Iterator[Server]:
    server = Server(model)
    yield server
    assert server.stop() == 0, "".join(server.lines)


@pytest.fixture
def both(server: Server) -> Iterator[tuple[Connection, Connection]]:
    """A connection to each of the two processes."""
    found = server.connection_to("api-0"), server.connection_to("api-1")
    yield found
    for connection in found:
        connection.close()


def eventually(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + _DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline_s, "it never came to that"
        time.sleep(0.01)


def test_a_stream_of_one_process_is_counted_and_ended_through_the_other(
    server: Server, both: tuple[Connection, Connection]
) -> None:
    first, second = both
    stream = first.open("/v1/completions", LONG, x_request_id="mine")
    assert stream.readline().startswith(b"data: {")
    # One that is silent for two seconds is not counted.
    eventually(lambda: second.json("/load") == {"server_load": 1})
    assert second.json("/abort_requests", {"request_ids": ["mine"]}) == {
        "cancelled_request_ids": ["cmpl-mine"]
    }
    rest = stream.read().decode()
    assert rest.count('"finish_reason":"abort"') == 1
    assert rest.endswith("data: [DONE]\n\n")
    assert second.json("/load") == {"server_load": 0}


def test_two_clients_may_state_one_id_at_two_processes(both: tuple[Connection, Connection]) -> None:
    streams = [one.open("/v1/completions", {**LONG, "request_id": "same", "max_tokens": 300}) for one in both]
    texts = [stream.read().decode() for stream in streams]
    for text in texts:
        assert text.count('"finish_reason":"length"') == 1
        assert text.endswith("data: [DONE]\n\n")


def test_a_model_has_one_card_whoever_shows_it(both: tuple[Connection, Connection]) -> None:
    assert both[0].json("/v1/models") == both[1].json("/v1/models")


def test_what_is_counted_outlives_a_process_and_is_the_same_everywhere(server: Server) -> None:
    served = "http_requests_total,/tokenize,POST,2xx"
    made = "vllm:generation_tokens_total,0,tiny"
    both = [server.connection_to(name) for name in ("api-0", "api-1")]
    before = max(one.metrics().get(served, 0.0) for one in both)
    for connection, count in zip(both, (2, 3), strict=True):
        for _ in range(count):
            connection.json("/tokenize", {"model": "tiny", "prompt": "the"})
    connection.json("/v1/completions", {**LONG, "max_tokens": 7, "stream": False})
    for connection in both:
        eventually(lambda: connection.metrics()[served] == before + 5)  # noqa: B023
    tokens = both[1].metrics()[made]
    assert {"engine", "api-0", "api-1"} == {
        series.partition(",")[2] for series in both[0].metrics() if series.startswith("process_resident")
    }
    old = server.pid("api-0")
    os.kill(old, signal.SIGKILL)
    assert both[1].metrics()[served] == before + 5
    both[0].close()
    up_again = re.compile("was ended by.*the api-0 process [^\n]*is up", re.DOTALL)
    eventually(lambda: up_again.search("".join(server.lines)) is not None)
    reborn = server.connection_to("api-0")
    assert server.pid("api-0") != old
    told = reborn.metrics()
    assert (told[served], told[made] >= tokens) == (before + 5, True)
    assert len(reborn.json("/v1/completions", {**LONG, "max_tokens": 7, "stream": False})["choices"]) == 1
    eventually(lambda: reborn.metrics()[made] >= tokens + 7)
    for connection in (reborn, both[1]):
        connection.close()


def test_a_stream_of_each_process_ends_in_its_own_time_while_the_server_drains(model: Path) -> None:
    server = Server(model)
    texts: list[str] = []
    streams: list[http.client.HTTPResponse] = []
    try:
        held = [server.connection_to(name) for name in ("api-0", "api-1")]
        streams = [
            one.open("/v1/completions", {**LONG, "max_tokens": count})
            for one, count in zip(held, (300, 1500), strict=True)
        ]
        for stream in streams:
            assert stream.readline().startswith(b"data: {")
    finally:
        status = server.stop(lambda: texts.extend(stream.read().decode() for stream in streams))
    assert status == 0, "".join(server.lines)
    for text in texts:
        assert text.count('"finish_reason":"length"') == 1
        assert text.endswith("data: [DONE]\n\n")
    for connection in held:
        connection.close()
