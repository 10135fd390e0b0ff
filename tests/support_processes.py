"""`noria serve` as its users run it, in processes that a test may stop and kill."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

LIMIT_S = 240.0  # for whatever has to come, however busy the machine: by far more than it ever takes


def until(condition: Callable[[], object], limit_s: float = LIMIT_S) -> float:
    """Seconds until the condition held; fails after `limit_s`."""
    start_s = time.monotonic()
    while not condition():
        assert time.monotonic() - start_s < limit_s, f"it did not come to that in {limit_s:g} s"
        time.sleep(0.01)
    return time.monotonic() - start_s


class Stream:
    """A streamed completion, read on a thread of its own."""

    def __init__(self, url: str, prompt: Any, max_tokens: int, **fields: Any) -> None:
        asked = {"prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True}
        self._body = {**asked, "stream": True, "return_token_ids": True, **fields}
        self._url = url
        self.data: list[str] = []  # of the events
        self.status = 0
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            with (
                httpx.Client(timeout=LIMIT_S) as client,
                client.stream("POST", f"{self._url}/v1/completions", json=self._body) as answer,
            ):
                self.status = answer.status_code
                rest = b""
                for part in answer.iter_bytes():
                    # Not by lines of text: what a model says may hold other marks that end a line.
                    *lines, rest = (rest + part).split(b"\n")
                    self.data += [line[6:].decode() for line in lines if line.startswith(b"data: ")]
        except httpx.TransportError as error:
            self.error = error

    @property
    def token_ids(self) -> list[int]:
        found = [json.loads(item) for item in self.data if item.startswith('{"id"')]
        return [i for chunk in found for choice in chunk["choices"] for i in choice["token_ids"] or ()]

    @property
    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def begun(self, num_chunks: int = 2) -> Stream:
        until(lambda: len(self.data) >= num_chunks or self.is_over)
        assert self.status == 200, f"status {self.status}"
        return self

    def end(self) -> Stream:
        self._thread.join(LIMIT_S)
        assert self.is_over
        return self

    @property
    def is_whole(self) -> bool:
        """It ended as a stream should, and with a finish reason."""
        return self.data[-1:] == ["[DONE]"] and '"finish_reason":"length"' in self.data[-2]

    @property
    def errors(self) -> list[dict[str, Any]]:
        return [json.loads(item)["error"] for item in self.data if item.startswith('{"error"')]


class Processes:
    """A server and its processes. flags: of `noria serve`."""

    def __init__(self, log: Path, *flags: object) -> None:
        self.log = log
        command = [sys.executable, "-m", "noria", "serve", "--port", "0", *map(str, flags)]
        with log.open("wb") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        self.url = ""

    def ready(self) -> Processes:
        until(lambda: re.search(r"listening on http", self.text()) or self.process.poll() is not None)
        found = re.search(r"listening on (http://\S+)", self.text())
        assert found, self.text()
        self.url = found[1]
        until(lambda: self.status("/ready") == 200)
        return self

    def text(self) -> str:
        """Its log so far."""
        return self.log.read_text(errors="replace")

    def pids(self) -> dict[str, int]:
        """Of its processes that live, by name: engine, api-0, ..."""
        found = {}
        for pid in _children(self.process.pid):
            name, state = _name_and_state(pid)
            if name.startswith("noria-") and state != "Z":
                found[name.removeprefix("noria-")] = pid
        return found

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        os.kill(self.pids()[name], number)

    def status(self, path: str) -> int:
        """0: there is no answer."""
        return self._get(path)[0]

    def _get(self, path: str) -> tuple[int, str]:
        """By a fresh connection, which any API process may take."""
        connection = HTTPConnection(urlsplit(self.url).netloc, timeout=30)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except (OSError, HTTPException):
            return 0, ""
        finally:
            connection.close()

    def stream(self, prompt: Any, max_tokens: int, **fields: Any) -> Stream:
        return Stream(self.url, prompt, max_tokens, **fields)

    def tokens(self, prompt: Any, max_tokens: int) -> list[int]:
        """What a greedy request gives, which comes back when it is told to (503).

        Each API process finds a new engine by itself, some tenths of a second after one another.
        """
        done = self.stream(prompt, max_tokens).end()
        deadline_s = time.monotonic() + LIMIT_S
        while done.status == 503 and time.monotonic() < deadline_s:
            time.sleep(0.05)
            done = self.stream(prompt, max_tokens).end()
        assert done.is_whole, (done.status, done.data[-2:], done.error)
        return done.token_ids

    def metrics(self) -> dict[str, float]:
        """By name; of several series, the last."""
        lines = self._get("/metrics")[1].splitlines()
        return {line.partition("{")[0]: float(line.rpartition(" ")[2]) for line in lines if line[:1] != "#"}

    def is_clean(self) -> bool:
        """Nothing runs or waits, and no block is in use."""
        metrics = self.metrics()
        names = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
        return [metrics.get(f"vllm:{name}") for name in names] == [0, 0, 0]

    def descriptors(self) -> dict[str, int]:
        return {name: len(os.listdir(f"/proc/{pid}/fd")) for name, pid in self.pids().items()}

    def rss_bytes(self) -> dict[str, int]:
        page = os.sysconf("SC_PAGE_SIZE")
        pids = self.pids().items()
        return {name: int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * page for name, pid in pids}

    def exit_code(self) -> int:
        return self.process.wait(LIMIT_S)


@contextmanager
def processes(log: Path, *flags: object) -> Iterator[Processes]:
    """A server that may still be starting: see `ready`."""
    running = Processes(log, *flags)
    try:
        yield running
    finally:
        for pid in running.pids().values():
            os.kill(pid, signal.SIGCONT)  # one that is stopped stays
        running.process.kill()  # the others end with it
        running.process.wait()


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def _name_and_state(pid: int) -> tuple[str, str]:
    try:
        rest = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return "", "Z"
    name, _, after = rest.partition("(")[2].rpartition(")")
    return name, after.split()[0]


def is_alive(pid: int) -> bool:
    return _name_and_state(pid)[1] != "Z"
