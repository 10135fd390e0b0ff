"""The process of one rule: makes it, answers the engine's questions one after another, ends when the engine is gone."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from typing import Any

import numpy as np

from noria.config.errors import NoriaError
from noria.config.plugins import SAMPLERS_GROUP, Entry
from noria.rules.api import ModelFacts
from noria.rules.messages import (
    ADJUST,
    ALLOWED,
    LENGTH,
    Answer,
    Begin,
    Born,
    Failed,
    FromChild,
    Question,
    Ready,
    Refused,
    decode_begin,
    decode_question,
    framed,
)

_METHODS = (ALLOWED, ADJUST)
_WORD_BITS = 32


def serve(line: socket.socket, facts: ModelFacts) -> None:
    """Until the line ends."""
    line.sendall(framed(Born(os.getpid())))
    content = read_frame(line)
    if content is None:
        return
    begin = decode_begin(content)
    made = _made(begin, facts)
    if isinstance(made, Refused):
        line.sendall(framed(made))
        return
    methods = tuple(method for method in _METHODS if callable(getattr(made, method, None)))
    line.sendall(framed(Ready(methods)))
    output_ids: list[int] = []
    while (content := read_frame(line)) is not None:
        question = decode_question(content)
        output_ids += question.output_ids
        line.sendall(framed(_answer(made, begin.prompt_ids, output_ids, question, facts.vocab_size)))


def read_frame(line: socket.socket) -> bytes | None:
    """The next message, None at the end of the line."""
    header = _exactly(line, LENGTH.size)
    return None if header is None else _exactly(line, LENGTH.unpack(header)[0])


def _exactly(line: socket.socket, size: int) -> bytes | None:
    parts: list[bytes] = []
    while size:
        part = line.recv(min(size, 1 << 20))
        if not part:
            return None
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _made(begin: Begin, facts: ModelFacts) -> Any:
    entry = Entry(SAMPLERS_GROUP, begin.name, begin.target, begin.distribution)
    try:
        kind = entry.load()
        if not any(callable(getattr(kind, method, None)) for method in _METHODS):
            return Refused(
                f"{entry.where} is no decoding rule: it has neither {' nor '.join(_METHODS)}", True
            )
    except BaseException as error:
        return Refused(str(error) or type(error).__name__, True)
    try:
        return kind(begin.arguments, facts)
    except NoriaError as error:
        return Refused(str(error), False)
    except BaseException as error:
        return Refused(_told(error), False)


def _answer(
    rule: Any, prompt_ids: Sequence[int], output_ids: Sequence[int], question: Question, vocab_size: int
) -> FromChild:
    try:
        known = (tuple(prompt_ids), tuple(output_ids))
        if question.method == ALLOWED:
            allowed = rule.allowed(*known)
            return Answer() if allowed is None else Answer(_bits(allowed, vocab_size))
        logits = np.frombuffer(bytearray(question.logits), np.float32)
        return Answer(_logits(rule.adjust(*known, logits), vocab_size))
    except BaseException as error:
        return Failed(_told(error))


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:1000]


def _bits(allowed: Any, vocab_size: int) -> bytes:
    """As sampling.token_masks has them. Raises ValueError."""
    is_allowed = np.zeros(-(-vocab_size // _WORD_BITS) * _WORD_BITS, dtype=bool)
    told = np.asarray(allowed if isinstance(allowed, np.ndarray) else list(allowed))
    if told.dtype == bool:
        if told.shape != (vocab_size,):
            raise ValueError(f"allowed returned {told.shape} flags for {vocab_size} tokens")
        is_allowed[:vocab_size] = told
    elif told.size:
        if told.dtype.kind not in "iu" or told.min() < 0 or told.max() >= vocab_size:
            raise ValueError(f"allowed must return token ids from 0 to {vocab_size - 1}")
        is_allowed[told] = True
    if not is_allowed.any():
        raise ValueError("allowed returned no token")
    return np.packbits(is_allowed, bitorder="little").tobytes()


def _logits(told: Any, vocab_size: int) -> bytes:
    logits = np.asarray(told, dtype=np.float32)
    if logits.shape != (vocab_size,):
        raise ValueError(f"adjust must return {vocab_size} logits, got the shape {logits.shape}")
    if np.isnan(logits).any():
        raise ValueError("adjust returned logits that are NaN")
    return logits.tobytes()
