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

from collections.abc import Sequence
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


class Packed(msgspec.Struct, frozen=True):
    """Requests as they cross. What they share, as the choices of one prompt do, is there once.

    requests: the fields of each; prompt_token_ids and params are places in prompts and params.
    params: of each what differs from the defaults.
    """

    prompts: tuple[tuple[int, ...], ...]
    params: tuple[dict[str, Any], ...]
    requests: tuple[dict[str, Any], ...]


class Submit(msgspec.Struct, frozen=True, tag="submit"):
    """serial: of the verdict that is waited for."""

    session: int
    serial: int
    requests: Packed


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
_SHARED = ("prompt_token_ids", "params")
_KINDS = {name: kind for name, kind in get_type_hints(GenerateRequest).items() if name not in _SHARED}
_PARAMS = tuple(item.name for item in fields(SamplingParams) if item.name != "logits_processors")


def packed(requests: Sequence[GenerateRequest]) -> Packed:
    """Raises RequestError for what cannot cross: code."""
    prompts = {id(request.prompt_token_ids): request.prompt_token_ids for request in requests}
    params = {id(request.params): request.params for request in requests}
    prompt_places = {key: place for place, key in enumerate(prompts)}
    params_places = {key: place for place, key in enumerate(params)}
    return Packed(
        tuple(prompts.values()),
        tuple(_stated(one) for one in params.values()),
        tuple(
            {name: getattr(request, name) for name in _KINDS}
            | {
                "prompt_token_ids": prompt_places[id(request.prompt_token_ids)],
                "params": params_places[id(request.params)],
            }
            for request in requests
        ),
    )


def _stated(params: SamplingParams) -> dict[str, Any]:
    if params.logits_processors:
        raise RequestError("logits_processors work in the engine's own process alone", "logits_processors")
    stated = {name: getattr(params, name) for name in _PARAMS}
    return {name: value for name, value in stated.items() if value != getattr(_DEFAULTS, name)}


def unpacked(sent: Packed) -> tuple[GenerateRequest, ...]:
    """The reverse of `packed`: what was shared is shared again."""
    params = [SamplingParams(**stated) for stated in sent.params]
    return tuple(
        GenerateRequest(
            prompt_token_ids=sent.prompts[content["prompt_token_ids"]],
            params=params[content["params"]],
            **{name: msgspec.convert(content[name], kind) for name, kind in _KINDS.items()},
        )
        for content in sent.requests
    )


def sent_error(error: NoriaError) -> SentError:
    return SentError(type(error).__name__, str(error), dict(vars(error)))


def error_of(sent: SentError) -> NoriaError:
    """The error again: its attributes are its class's keywords."""
    error: NoriaError = getattr(errors, sent.kind)(sent.message, **sent.details)
    return error
