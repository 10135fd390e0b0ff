"""A streaming client that costs little: it shares the machine's cores with the server that it measures.

While requests run it only notes when which bytes came; what they say is read afterwards.
"""

from __future__ import annotations

import asyncio
import json
import time
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import uvloop

from benchmarks.peers.traffic import EngineFailed, OnDone, Play, Reply, Request

HOST = "127.0.0.1"
MODEL_NAME = "model"
_LAST_CHUNK = b"0\r\n\r\n"


@dataclass(slots=True)
class Exchange:
    """sent_s and pieces' times: time.perf_counter() seconds. pieces: bytes of the reply as they arrived."""

    sent_s: float
    pieces: list[tuple[float, bytes]] = field(default_factory=list)


def play(port: int, groups: Play, on_done: OnDone, limit_s: float) -> list[Reply]:
    """Send all requests as the groups say; the replies by group and index. Raises EngineFailed."""

    async def limited() -> dict[tuple[int, int], Exchange]:
        return await asyncio.wait_for(_play(port, groups, on_done), limit_s)

    origin_s = time.perf_counter()
    try:
        exchanges = uvloop.run(limited())
    except asyncio.TimeoutError as error:
        raise EngineFailed(f"requests had not ended after {limit_s:.0f} s") from error
    except OSError as error:
        raise EngineFailed(f"connection failed: {error}") from error
    return [read(exchange, origin_s, *key) for key, exchange in sorted(exchanges.items())]


async def _play(port: int, groups: Play, on_done: OnDone) -> dict[tuple[int, int], Exchange]:
    exchanges: dict[tuple[int, int], Exchange] = {}

    async def lane(number: int, waiting: Iterator[tuple[int, Request]]) -> None:
        for index, request in waiting:
            exchanges[number, index] = await send(port, request)
            on_done()

    async def run(number: int) -> None:
        group = groups[number]
        await asyncio.sleep(group.start_after_s)
        waiting = iter(enumerate(group.requests))
        await asyncio.gather(*(lane(number, waiting) for _ in range(group.concurrency)))

    await asyncio.gather(*(run(number) for number in range(len(groups))))
    return exchanges


async def send(port: int, request: Request) -> Exchange:
    """One completion over a connection of its own. Raises OSError."""
    loop = asyncio.get_running_loop()
    ended = loop.create_future()
    exchange = Exchange(time.perf_counter())
    await loop.create_connection(lambda: _Wire(_message(request), exchange, ended), HOST, port)
    await ended
    return exchange


class _Wire(asyncio.Protocol):
    def __init__(self, message: bytes, exchange: Exchange, ended: asyncio.Future[None]) -> None:
        self.message = message
        self.exchange = exchange
        self.ended = ended
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(self.message)

    def data_received(self, data: bytes) -> None:
        self.exchange.pieces.append((time.perf_counter(), data))
        if data.endswith(_LAST_CHUNK) and self.transport is not None:
            self._end()
            self.transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        self._end()

    def _end(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)


def _message(request: Request) -> bytes:
    fields = {
        "model": MODEL_NAME,
        "prompt": request.prompt,
        "max_tokens": request.max_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    body = json.dumps(fields).encode()
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


def read(exchange: Exchange, origin_s: float, group: int, index: int) -> Reply:
    """What the noted bytes say. Raises EngineFailed: an error, no tokens, or no usage."""
    raw = b"".join(piece for _, piece in exchange.pieces)
    head, _, _ = raw.partition(b"\r\n\r\n")
    if not head.startswith((b"HTTP/1.1 200", b"HTTP/1.0 200")) or b"chunked" not in head.lower():
        raise EngineFailed(f"request {index} was not answered with a stream: {_shorten(raw)}")
    token_s: list[float] = []
    texts: list[str] = []
    usage: dict[str, int] = {}
    for moment_s, event in _events(exchange, raw, len(head) + 4):
        if "error" in event:
            raise EngineFailed(f"request {index} broke off: {event['error']}")
        usage = event.get("usage") or usage
        choices = event.get("choices") or ()
        # The piece that only says why the text ended is no token.
        if choices and (choices[0].get("text") or not choices[0].get("finish_reason")):
            token_s.append(moment_s - origin_s)
            texts.append(choices[0].get("text") or "")
    if not token_s or "completion_tokens" not in usage:
        raise EngineFailed(f"request {index} ended without tokens or without usage: {_shorten(raw)}")
    return Reply(
        group,
        index,
        exchange.sent_s - origin_s,
        tuple(token_s),
        usage["prompt_tokens"],
        usage["completion_tokens"],
        "".join(texts),
    )


def _events(exchange: Exchange, raw: bytes, start: int) -> Iterator[tuple[float, dict[str, Any]]]:
    """Server-sent events with the time at which the last byte of each had come."""
    ends: list[int] = []
    for _, piece in exchange.pieces:
        ends.append((ends[-1] if ends else 0) + len(piece))
    pending = b""
    for end, chunk in _chunks(raw, start):
        *whole, pending = (pending + chunk).split(b"\n\n")
        moment_s = exchange.pieces[bisect_left(ends, end)][0]
        for event in whole:
            data = b"".join(line[5:] for line in event.splitlines() if line.startswith(b"data:")).strip()
            if data and data != b"[DONE]":
                yield moment_s, json.loads(data)


def _chunks(raw: bytes, start: int) -> Iterator[tuple[int, bytes]]:
    """The chunks of HTTP's chunked encoding from `start` on, each with the offset of its end in `raw`."""
    while (line_end := raw.find(b"\r\n", start)) >= 0:
        size = int(raw[start:line_end].split(b";")[0] or b"0", 16)
        begin, end = line_end + 2, line_end + 2 + size
        if size == 0 or end > len(raw):
            return
        yield end, raw[begin:end]
        start = end + 2


def _shorten(raw: bytes) -> str:
    text = raw.decode(errors="replace").strip()
    return text[-300:] or "the connection was closed"
