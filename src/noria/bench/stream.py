"""Reads an answer of server-sent events after it has come: while it does, only bytes and instants are kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

# (instant, bytes of the body that came then)
Arrived = Sequence[tuple[float, bytes]]


@dataclass(frozen=True, slots=True)
class Reply:
    """As Outcome. is_complete: the stream said that it had ended. num_prompt, num_output: None where no usage came."""

    chunk_s: tuple[float, ...]
    chunk_tokens: tuple[int, ...]
    num_prompt: int | None
    num_output: int | None
    num_cached: int | None
    text: str
    error: str
    is_complete: bool


@dataclass(slots=True)
class _Chunk:
    moment_s: float
    text: str
    num_tokens: int | None  # as the server said, with continuous usage


def read_reply(arrived: Arrived) -> Reply:
    """Whatever came of it, also of one that broke off."""
    chunks: list[_Chunk] = []
    usage: dict[str, Any] = {}
    error, is_complete, counted = "", False, 0
    for moment_s, data in _events(arrived):
        if data == b"[DONE]":
            is_complete = True
            continue
        try:
            event = orjson.loads(data)
        except orjson.JSONDecodeError:
            error = error or f"not JSON: {data[:80]!r}"
            continue
        if "error" in event:
            error = str(event["error"])
        usage = event.get("usage") or usage
        text, is_token = _said(event)
        if not is_token:
            continue
        total = (event.get("usage") or {}).get("completion_tokens")
        chunks.append(_Chunk(moment_s, text, None if total is None else total - counted))
        counted = counted if total is None else total
    num_output = usage.get("completion_tokens")
    kept, tokens = _counted(chunks, num_output)
    return Reply(
        chunk_s=tuple(chunk.moment_s for chunk in kept),
        chunk_tokens=tokens,
        num_prompt=usage.get("prompt_tokens"),
        num_output=num_output,
        num_cached=(usage.get("prompt_tokens_details") or {}).get("cached_tokens"),
        text="".join(chunk.text for chunk in chunks),
        error=error,
        is_complete=is_complete,
    )


def _events(arrived: Arrived) -> Iterator[tuple[float, bytes]]:
    """The data of every event with the instant at which its last byte had come."""
    pending = b""
    for moment_s, piece in arrived:
        pending += piece
        if b"\r" in pending:
            pending = pending.replace(b"\r\n", b"\n")
        *whole, pending = pending.split(b"\n\n")
        for event in whole:
            yield from ((moment_s, data) for data in _data_of(event))
    if pending.strip() and arrived:
        yield from ((arrived[-1][0], data) for data in _data_of(pending))


def _data_of(event: bytes) -> Iterator[bytes]:
    lines = [line[5:].strip() for line in event.split(b"\n") if line.startswith(b"data:")]
    if lines:
        yield b"\n".join(lines)


def _said(event: dict[str, Any]) -> tuple[str, bool]:
    """The text of an event, and whether it brings a token: one that only says why the text ended brings none."""
    choices = event.get("choices") or ()
    if not choices:
        return "", False
    choice = choices[0]
    delta = choice.get("delta")
    if delta is None:
        text = choice.get("text") or ""
        return text, bool(text) or not choice.get("finish_reason")
    text = delta.get("content") or delta.get("reasoning_content") or delta.get("reasoning") or ""
    is_token = bool(text or delta.get("tool_calls"))
    return text, is_token


def _counted(chunks: list[_Chunk], num_output: int | None) -> tuple[list[_Chunk], tuple[int, ...]]:
    """The chunks that brought tokens, and how many each did."""
    if not chunks:
        return [], ()
    if all(chunk.num_tokens is not None for chunk in chunks):
        kept = [chunk for chunk in chunks if chunk.num_tokens]
        return kept, tuple(chunk.num_tokens or 0 for chunk in kept)
    if num_output is None or num_output == len(chunks):
        return chunks, (1,) * len(chunks)
    if num_output < len(chunks):
        # Pieces without text that were none: an opening one, or one that said the end.
        chunks = [chunk for chunk in chunks if chunk.text] or chunks
        chunks = chunks[-max(1, num_output) :] if len(chunks) > num_output else chunks
    return chunks, _spread(chunks, max(num_output, len(chunks)))


def _spread(chunks: list[_Chunk], num_output: int) -> tuple[int, ...]:
    """One token each, and the others by the length of the texts: the best guess where the server does not say."""
    extra = num_output - len(chunks)
    lengths = [max(1, len(chunk.text)) for chunk in chunks]
    total, told, before = sum(lengths), 0, 0
    tokens = []
    for length in lengths:
        before += length
        upto = round(extra * before / total)
        tokens.append(1 + upto - told)
        told = upto
    return tuple(tokens)
