"""What crosses between an engine's process and its clients', in msgpack over ZeroMQ.

    API process                        engine process
      PUSH  -- Hello, Submit, Cancel -->  PULL            one PULL for all clients
      PULL  <-- Welcome, Verdict, News -- PUSH, PUSH      two for each session: see `host`

    API process  -- Ask -->  engine  -- Asked -->  every other API process
                 <-- AskedOf, Replied --  engine  <-- Reply --

A session is one API process's acquaintance with one engine. When either ends, or messages could not be delivered,
a new one begins and what the old one asked for is over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, get_type_hints

import msgspec

from noria.config import errors
from noria.config.errors import NoriaError, RequestError
from noria.core.outputs import Delta, FinishReason
from noria.engine.messages import GenerateRequest, RequestRecord, StepRecord
from noria.sampling.params import SamplingParams


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """A client's first words. endpoint: where it takes messages."""

    session: int
    slot: int
    api_incarnation: int
    endpoint: str


class Submit(msgspec.Struct, frozen=True, tag="submit"):
    """serial: of the verdict that is waited for. requests: see `packed`."""

    session: int
    serial: int
    requests: tuple[dict[str, Any], ...]


class Cancel(msgspec.Struct, frozen=True, tag="cancel"):
    session: int
    request_ids: tuple[str, ...]
    finish: FinishReason


class Ask(msgspec.Struct, frozen=True, tag="ask"):
    """A question to every other client. serial: of the answers that are waited for."""

    session: int
    serial: int
    topic: str
    content: bytes


class Reply(msgspec.Struct, frozen=True, tag="reply"):
    """asker, serial: as they came with the question."""

    session: int
    asker: int
    serial: int
    content: bytes


Command = Hello | Submit | Cancel | Ask | Reply


class Welcome(msgspec.Struct, frozen=True, tag="welcome"):
    session: int


class SentError(msgspec.Struct, frozen=True):
    """A NoriaError on its way: the name of its class, its words and its attributes."""

    kind: str
    message: str
    details: dict[str, Any]


class Verdict(msgspec.Struct, frozen=True, tag="verdict"):
    """error: why nothing was taken; None when everything was."""

    session: int
    serial: int
    error: SentError | None


class News(msgspec.Struct, frozen=True, tag="news"):
    """What steps brought. Records come before the deltas of the requests they tell of."""

    session: int
    deltas: tuple[Delta, ...] = ()
    steps: tuple[StepRecord, ...] = ()
    requests: tuple[RequestRecord, ...] = ()


class Asked(msgspec.Struct, frozen=True, tag="asked"):
    """A question of another client's. asker: its session."""

    session: int
    asker: int
    serial: int
    topic: str
    content: bytes


class AskedOf(msgspec.Struct, frozen=True, tag="asked_of"):
    """How many clients a question went to."""

    session: int
    serial: int
    num_asked: int


class Replied(msgspec.Struct, frozen=True, tag="replied"):
    """One client's answer."""

    session: int
    serial: int
    content: bytes


Message = Welcome | Verdict | News | Asked | AskedOf | Replied

_encoder = msgspec.msgpack.Encoder()
encode = _encoder.encode  # of a Command or a Message
decode_command = msgspec.msgpack.Decoder(Command).decode
decode_message = msgspec.msgpack.Decoder(Message).decode
DecodeError = msgspec.DecodeError

_DEFAULTS = SamplingParams()
# The parameters check themselves; the rest of a request is what its fields say.
_KINDS = {name: kind for name, kind in get_type_hints(GenerateRequest).items() if name != "params"}
_PARAMS = tuple(item.name for item in fields(SamplingParams) if item.name != "logits_processors")


def packed(requests: Iterable[GenerateRequest]) -> tuple[dict[str, Any], ...]:
    """Raises RequestError for what cannot cross: code."""
    return tuple(_packed(request) for request in requests)


def _packed(request: GenerateRequest) -> dict[str, Any]:
    if request.params.logits_processors:
        raise RequestError("logits_processors work in the engine's own process alone", "logits_processors")
    content = {item.name: getattr(request, item.name) for item in fields(request)}
    content["params"] = _stated(request.params)
    return content


def _stated(params: SamplingParams) -> dict[str, Any]:
    stated = {name: getattr(params, name) for name in _PARAMS}
    return {name: value for name, value in stated.items() if value != getattr(_DEFAULTS, name)}


def unpacked(contents: Sequence[Mapping[str, Any]]) -> tuple[GenerateRequest, ...]:
    """The reverse of `packed`."""
    return tuple(_unpacked(content) for content in contents)


def _unpacked(content: Mapping[str, Any]) -> GenerateRequest:
    values = {name: msgspec.convert(content[name], kind) for name, kind in _KINDS.items()}
    return GenerateRequest(params=SamplingParams(**content["params"]), **values)


def sent_error(error: NoriaError) -> SentError:
    return SentError(type(error).__name__, str(error), dict(vars(error)))


def error_of(sent: SentError) -> NoriaError:
    """The error again: its attributes are its class's keywords."""
    error: NoriaError = getattr(errors, sent.kind)(sent.message, **sent.details)
    return error
