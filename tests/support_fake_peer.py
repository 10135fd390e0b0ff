"""A server that streams as the peers do, token by token, and notes how many requests it had at once."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


class FakePeer:
    """Answers are "a b c ...": max_tokens words, and the prompt's words are its tokens.

    gathers: no answer begins before this many requests have been there at once.
    """

    def __init__(self) -> None:
        self.port = 0
        self.num_at_once = 0
        self.most_at_once = 0
        self.gathers = 1
        self.gathered = asyncio.Event()
        self.bodies: list[dict[str, Any]] = []
        self.refusal: bytes | None = None
        self.breaks_off_after: int | None = None

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        [length] = [int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"Content-Length:")]
        body = json.loads(await reader.readexactly(length))
        self.bodies.append(body)
        self.num_at_once += 1
        self.most_at_once = max(self.most_at_once, self.num_at_once)
        if self.most_at_once >= self.gathers:
            self.gathered.set()
        await self.gathered.wait()
        await self._reply(body, writer)
        self.num_at_once -= 1
        writer.close()

    async def _reply(self, body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        if self.refusal is not None:
            writer.write(self.refusal)
            return
        writer.write(HEAD)
        for number in range(body["max_tokens"]):
            if number == self.breaks_off_after:
                return
            await self._say(writer, {"choices": [{"text": f"{chr(97 + number)} ", "finish_reason": None}]})
        await self._say(writer, {"choices": [{"text": "", "finish_reason": "length"}]})
        usage = {"prompt_tokens": len(body["prompt"].split()), "completion_tokens": body["max_tokens"]}
        await self._say(writer, {"choices": [], "usage": usage})
        writer.write(chunked(b"data: [DONE]\n\n") + b"0\r\n\r\n")

    async def _say(self, writer: asyncio.StreamWriter, event: dict[str, Any]) -> None:
        """In two pieces, so that no event comes whole; others have their turn between them."""
        data = chunked(b"data: " + json.dumps(event).encode() + b"\n\n")
        for piece in (data[:20], data[20:]):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)


def chunked(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


@contextmanager
def serving() -> Iterator[FakePeer]:
    """The fake peer on a free port of this machine, in a thread of its own."""
    peer, ready, stop = FakePeer(), threading.Event(), threading.Event()

    async def serve() -> None:
        server = await asyncio.start_server(peer.answer, "127.0.0.1", 0)
        peer.port = server.sockets[0].getsockname()[1]
        ready.set()
        await asyncio.get_running_loop().run_in_executor(None, stop.wait)
        server.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    ready.wait()
    try:
        yield peer
    finally:
        stop.set()
        thread.join()
