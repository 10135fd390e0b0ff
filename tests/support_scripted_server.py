"""An OpenAI-compatible server whose delays, chunks and faults a test writes; on a thread with a loop of its own."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Script:
    """An answer. chunks: (seconds since the one before, tokens). overhead: that a chat's template adds.
    miscount: what the server counts too many of prompt tokens. breaks_after: chunks after which it hangs up.
    gathers: streams that must have been there at once before it begins.
    """

    chunks: Sequence[tuple[float, int]] = ((0.0, 1),)
    status: int = 200
    overhead: int = 0
    miscount: int = 0
    breaks_after: int | None = None
    tells_usage: bool = True
    gathers: int = 1


@dataclass
class ScriptedServer:
    """script: from a request's body to its answer. bodies: of all requests, in order."""

    script: Callable[[dict[str, Any]], Script]
    has_tokenize: bool = True
    port: int = 0
    bodies: list[dict[str, Any]] = field(default_factory=list)
    num_connections: int = 0
    most_at_once: int = 0
    _now: int = 0
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.num_connections += 1
        try:
            while await self._answer(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request. Returns whether another may follow."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next(
            int(line[15:]) for line in head.split("\r\n") if line.lower().startswith("content-length:")
        )
        body = json.loads(await reader.readexactly(length) or b"{}")
        path = head.split()[1]
        if path in ("/v1/completions", "/v1/chat/completions"):
            return await self._complete(writer, path, body)
        status, content = self._plain(path, body)
        writer.write(_whole(status, content))
        return True

    def _plain(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        if path == "/v1/models":
            return 200, {"data": [{"id": "scripted", "max_model_len": 4096, "owned_by": "test"}]}
        if path == "/tokenize" and self.has_tokenize:
            return 200, {"tokens": tokens(body["prompt"])}
        return 404, {"error": "no such path"}

    async def _complete(self, writer: asyncio.StreamWriter, path: str, body: dict[str, Any]) -> bool:
        self.bodies.append(body)
        script = self.script(body)
        prompt = body.get("prompt", body.get("messages"))
        count = len(prompt if isinstance(prompt, list) and "prompt" in body else tokens(_said(prompt)))
        count += script.miscount + (script.overhead if "messages" in body else 0)
        if script.status != 200:
            writer.write(_whole(script.status, {"error": {"message": "scripted"}}))
            return True
        usage = {"prompt_tokens": count, "completion_tokens": sum(num for _, num in script.chunks)}
        if not body.get("stream"):
            writer.write(_whole(200, {"usage": usage, "choices": [{"message": {"content": "x"}}]}))
            return True
        self._now += 1
        self.most_at_once = max(self.most_at_once, self._now)
        try:
            await self._gather(script.gathers)
            return await self._stream(writer, path, script, usage)
        finally:
            self._now -= 1

    async def _gather(self, count: int) -> None:
        async with self._changed:
            self._changed.notify_all()
            await self._changed.wait_for(lambda: self.most_at_once >= count)

    async def _stream(
        self, writer: asyncio.StreamWriter, path: str, script: Script, usage: dict[str, int]
    ) -> bool:
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        for number, (delay_s, num_tokens) in enumerate(script.chunks):
            if number == script.breaks_after:
                return False
            if delay_s:
                await asyncio.sleep(delay_s)
            text = "t " * num_tokens
            choice = {"delta": {"content": text}} if "chat" in path else {"text": text}
            _write_chunk(writer, {"choices": [{**choice, "finish_reason": None}]})
        if script.tells_usage:
            _write_chunk(writer, {"choices": [], "usage": usage})
        writer.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
        return True


def tokens(text: str) -> list[int]:
    """A word is a token."""
    return [sum(word.encode()) for word in text.split()]


def _said(messages: Any) -> str:
    return messages if isinstance(messages, str) else " ".join(message["content"] for message in messages)


def _write_chunk(writer: asyncio.StreamWriter, event: dict[str, Any]) -> None:
    data = f"data: {json.dumps(event)}\n\n".encode()
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


def _whole(status: int, content: Any) -> bytes:
    body = json.dumps(content).encode()
    head = (
        f"HTTP/1.1 {status} Scripted\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def _end(listening: asyncio.Server) -> None:
    listening.close()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


@contextmanager
def scripted(
    script: Callable[[dict[str, Any]], Script] | Script | None = None, has_tokenize: bool = True
) -> Iterator[ScriptedServer]:
    """A running one. Without a script every answer comes at once, a token a chunk, as long as asked."""
    if script is None:
        script = lambda body: Script(chunks=((0.0, 1),) * body["max_tokens"])  # noqa: E731
    fixed = script
    server = ScriptedServer(script if callable(script) else lambda body: fixed, has_tokenize)  # type: ignore[arg-type,return-value]
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    listening = asyncio.run_coroutine_threadsafe(
        asyncio.start_server(server.serve, "127.0.0.1", 0), loop
    ).result(60)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(_end(listening), loop).result(60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(60)
        loop.close()
