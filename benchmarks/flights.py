"""Requests of an overload, and a client that takes as little of the machine as it can: the server has the same one."""

from __future__ import annotations

import asyncio
import json
import random
import socket
import time
from dataclasses import dataclass

from benchmarks.noria_server import HOST

PROMPT_WORDS = 24
# Tokens to generate. Much longer and much shorter ones together would make overload look too good: under it the short
# ones meet their deadlines and the others are refused.
SHORTEST, LONGEST = 12, 16
WORDS = "river wheel turns bucket water mill stone grain slow bright field road house lamp night rain"


@dataclass(frozen=True)
class Shot:
    """One request. at_s: when it is sent, from the start of its load. port: where to."""

    at_s: float
    port: int
    prompt: str
    max_tokens: int


@dataclass(frozen=True)
class Outcome:
    """status: of HTTP; 0 where there was no whole answer. seconds: from sending to its end."""

    status: int
    seconds: float


def shots(port: int, rate: float, seconds: float, seed: int) -> list[Shot]:
    """Poisson arrivals of requests that share no prompt."""
    draw = random.Random(seed)
    words = WORDS.split()
    at_s, drawn = 0.0, []
    while (at_s := at_s + draw.expovariate(rate)) < seconds:
        prompt = " ".join(draw.choice(words) for _ in range(PROMPT_WORDS))
        drawn.append(Shot(at_s, port, prompt, draw.randint(SHORTEST, LONGEST)))
    return drawn


def message_of(shot: Shot, told_s: float | None) -> bytes:
    """A whole request, for a connection of its own."""
    body = {"prompt": shot.prompt, "max_tokens": shot.max_tokens, "temperature": 0, "ignore_eos": True}
    content = json.dumps(body).encode()
    stated = f"X-Request-Timeout: {told_s}\r\n" if told_s is not None else ""
    head = f"POST /v1/completions HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\n{stated}"
    return f"{head}Content-Length: {len(content)}\r\nConnection: close\r\n\r\n".encode() + content


class Flight:
    """One request under way. The client takes from the server's processors: a bare socket, no task, no transport."""

    def __init__(self, port: int, message: bytes) -> None:
        self._port = port
        self._message = message
        self._parts: list[bytes] = []
        self._start_s = 0.0
        self._loop = asyncio.get_running_loop()
        self.outcome: asyncio.Future[Outcome] = self._loop.create_future()

    def begin(self, patience_s: float) -> None:
        self._start_s = time.perf_counter()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._timer = self._loop.call_later(patience_s, self._end, False)
        try:
            self._socket.connect((HOST, self._port))  # on one machine: done as soon as it is asked for
            self._socket.setblocking(False)
            self._socket.sendall(self._message)
        except OSError:
            self._end(False)
            return
        self._loop.add_reader(self._socket, self._read)

    def _read(self) -> None:
        try:
            part = self._socket.recv(65536)
        except OSError:
            self._end(False)
            return
        if part:
            self._parts.append(part)
        else:
            self._end(True)

    def _end(self, is_whole: bool) -> None:
        self._timer.cancel()
        self._loop.remove_reader(self._socket)
        self._socket.close()
        answer = b"".join(self._parts) if is_whole else b""
        status = int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else 0
        self.outcome.set_result(Outcome(status, time.perf_counter() - self._start_s))
