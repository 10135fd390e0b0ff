"""What the scenarios of `make chaos` share: what is served, figures for their table, hostile input."""

from __future__ import annotations

import json
import socket
import statistics
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from support_processes import Processes, until

PROMPT = "The water wheel turns, and"
NUM_TOKENS = 48
HANG_S = 6.0  # on a busy machine a process may have no turn for seconds
MAX_UNREAD = 64
FLAGS: tuple[object, ...] = (
    *("--num-gpu-blocks-override", 96, "--max-num-seqs", 8, "--max-num-queued-reqs", 16),
    *("--engine-hang-timeout", HANG_S, "--api-hang-timeout", HANG_S),
    *(
        "--max-unread-tokens",
        MAX_UNREAD,
        "--max-logprobs",
        1000,
        "--disable-uvicorn-access-log",
        "--served-model-name",
        "test",
    ),
)
HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"


@dataclass
class Measured:
    """Figures of one scenario."""

    name: str
    figures: list[str] = field(default_factory=list)

    def seconds(self, what: str, value_s: float) -> float:
        self.figures.append(f"{what} {value_s:.2f} s")
        return value_s

    def note(self, text: str) -> None:
        self.figures.append(text)


def check_clean(server: Processes, before: dict[str, int]) -> None:
    """Wait until the server is whole and idle, with about as many descriptors open as `before`."""
    until(lambda: set(server.pids()) == {"engine", "api-0", "api-1"})
    until(lambda: server.status("/ready") == 200)
    # Either API process may answer; what both say has to be so.
    until(lambda: all(server.is_clean() for _ in range(4)))
    until(lambda: all(count <= before[name] + 6 for name, count in server.descriptors().items()))


def median_descriptors(server: Processes) -> dict[str, int]:
    looks = [server.descriptors() for _ in range(5)]
    return {name: int(statistics.median(look[name] for look in looks)) for name in looks[0]}


def connect(server: Processes, content: bytes = b"", buffer_bytes: int | None = None) -> socket.socket:
    """A connection on which something has been sent, or as much of it as is taken.

    buffer_bytes: how much it holds that is not read.
    """
    address = urlsplit(server.url)
    client = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    client.settimeout(60)
    if buffer_bytes is not None:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
    client.connect((address.hostname, address.port))
    with suppress(OSError):  # refused in the middle, which is the server's right
        client.sendall(content)
    return client


def request(body: bytes, stated_length: int | None = None) -> bytes:
    length = len(body) if stated_length is None else stated_length
    return HEAD + b"Content-Length: %d\r\n\r\n" % length + body


def asked(max_tokens: int, **fields: Any) -> bytes:
    body = {"prompt": PROMPT, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True, **fields}
    return request(json.dumps(body).encode())


def answer(client: socket.socket) -> bytes:
    """The first bytes that come back; none if the connection ends."""
    try:
        return client.recv(65536)
    except ConnectionError:
        return b""


def hostile_bodies() -> list[bytes]:
    """60 of them: nested, huge, of wrong types, not JSON, not text."""
    deep = [opening * 100_000 for opening in (b"[", b'{"prompt":', b'[{"a":')]
    deep += [b'{"prompt":' + b"[" * depth + b"]" * depth + b"}" for depth in (2, 200, 5000)]
    values = (
        b"1e400",
        b"-1e400",
        b"NaN",
        b"Infinity",
        b"9" * 5000,
        b"-1",
        b"2.5",
        b'"5"',
        b"[]",
        b"{}",
        b"null",
    )
    wrong = [b'{"prompt": "a", "%s": %s}' % (name, value) for value in values for name in _NUMBERS]
    texts = [b"\xff\xfe\x00", b'{"prompt": "\xff"}', b'{"prompt": "\xed\xa0\x80"}', b'{"prompt": "a\x00b"}']
    texts += [b"", b"{", b"null", b'"a"', b"[]", b'{"prompt": "a"} x', b"\x00" * 1000, b'{"prompt": {}}']
    texts += [
        b'{"prompt": [[-1]]}',
        b'{"prompt": [1e9]}',
        b'{"prompt": ["a", 5]}',
        b'{"prompt": ' + b"9" * 400 + b"}",
    ]
    big = [b'{"prompt": "' + b"a" * (33 * 2**20) + b'"}']
    return (deep + texts + big + wrong)[:60]


_NUMBERS = (b"max_tokens", b"n", b"temperature", b"logprobs")
