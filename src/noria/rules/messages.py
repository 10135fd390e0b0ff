"""What crosses between the engine and the process of a rule: msgpack behind a length of 4 bytes."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import msgspec

LENGTH = struct.Struct("<I")
ALLOWED, ADJUST = "allowed", "adjust"  # methods of a rule, and what it is asked


class Fork(msgspec.Struct, frozen=True, tag="fork"):
    """To the nursery, with a socket: have a child at its other end."""


class Begin(msgspec.Struct, frozen=True):
    """To a child: make a rule. target: of its entry point, of `distribution`."""

    name: str
    target: str
    distribution: str
    arguments: Mapping[str, Any]
    prompt_ids: tuple[int, ...]


class Preload(msgspec.Struct, frozen=True, tag="preload"):
    """To the nursery: import what a child could import, so that later ones need not."""

    target: str


class End(msgspec.Struct, frozen=True, tag="end"):
    """To the nursery: end a child."""

    pid: int


class Born(msgspec.Struct, frozen=True, tag="born"):
    """From a child, before it is told anything."""

    pid: int


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """From a child whose rule is made. methods: of ALLOWED and ADJUST, those it has."""

    methods: tuple[str, ...]


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """From a child that could not make its rule. is_package: by the fault of its package, not of its arguments."""

    message: str
    is_package: bool


class Question(msgspec.Struct, frozen=True, tag="question"):
    """To a child. method: ALLOWED or ADJUST. output_ids: sampled since the question before. logits: float32, if any."""

    method: str
    output_ids: tuple[int, ...]
    logits: bytes = b""


class Answer(msgspec.Struct, frozen=True, tag="answer"):
    """From a child. content: bits as in sampling.token_masks or logits, none where nothing changes."""

    content: bytes = b""


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """From a child whose rule raised, or answered with what is no answer."""

    message: str


Command = Fork | Preload | End
FromChild = Born | Ready | Refused | Answer | Failed

_encoder = msgspec.msgpack.Encoder()
decode_command = msgspec.msgpack.Decoder(Command).decode
decode_begin = msgspec.msgpack.Decoder(Begin).decode
decode_question = msgspec.msgpack.Decoder(Question).decode
decode_from_child = msgspec.msgpack.Decoder(FromChild).decode


def encoded(command: Command) -> bytes:
    return _encoder.encode(command)


def framed(message: Begin | FromChild | Question) -> bytes:
    content = _encoder.encode(message)
    return LENGTH.pack(len(content)) + content
