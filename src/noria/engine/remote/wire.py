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
from dataclasses import dataclass, field, fields
from typing import Any, get_type_hints

import msgspec

from noria.config import errors
from noria.config.errors import NoriaError, RequestError
from noria.config.pooling import PoolingParams
from noria.core.outputs import Delta, FinishReason
from noria.engine.messages import EngineRequest, GenerateRequest, PoolRequest, RequestRecord, StepRecord
from noria.sampling.grammar import Grammar
from noria.sampling.params import SamplingParams
from noria.sampling.rule import Rule


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """A client's first words. endpoint: where it takes messages."""

    session: int
    slot: int
    api_incarnation: int
    endpoint: str


class Packed(msgspec.Struct, frozen=True):
    """Requests as they cross. What they share, as the choices of one prompt do, is there once.

    requests: the fields of each; prompt_token_ids and params are places in prompts and params.
    params: of each its kind, of KINDS, and what differs from that one's defaults. The request is of that kind too.
    """

    prompts: tuple[tuple[int, ...], ...]
    params: tuple[tuple[str, dict[str, Any]], ...]
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

_SHARED = ("prompt_token_ids", "params")


@dataclass(frozen=True)
class _Kind:
    """What is asked of the engine: a class of requests and that of their parameters, which has defaults."""

    request: type[EngineRequest]
    params: type[SamplingParams] | type[PoolingParams]
    stays: frozenset[str] = frozenset()  # parameters that are code and cannot cross
    fields: dict[str, Any] = field(init=False)
    defaults: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        hints = get_type_hints(self.request)
        names = [item.name for item in fields(self.request) if item.name not in _SHARED]
        object.__setattr__(self, "fields", {name: hints[name] for name in names})
        params = self.params()
        names = [item.name for item in fields(params) if item.name not in self.stays]
        object.__setattr__(self, "defaults", {name: getattr(params, name) for name in names})


KINDS = {
    "generate": _Kind(GenerateRequest, SamplingParams, frozenset({"logits_processors"})),
    "pool": _Kind(PoolRequest, PoolingParams),
}
_NAMES = {kind.params: name for name, kind in KINDS.items()}


def packed(requests: Sequence[EngineRequest]) -> Packed:
    """Raises RequestError for what cannot cross: code."""
    prompts = {id(request.prompt_token_ids): request.prompt_token_ids for request in requests}
    params = {id(request.params): request.params for request in requests}
    prompt_places = {key: place for place, key in enumerate(prompts)}
    params_places = {key: place for place, key in enumerate(params)}
    return Packed(
        tuple(prompts.values()),
        tuple(_stated(one) for one in params.values()),
        tuple(
            {name: getattr(request, name) for name in KINDS[_NAMES[type(request.params)]].fields}
            | {
                "prompt_token_ids": prompt_places[id(request.prompt_token_ids)],
                "params": params_places[id(request.params)],
            }
            for request in requests
        ),
    )


def _stated(params: SamplingParams | PoolingParams) -> tuple[str, dict[str, Any]]:
    name = _NAMES[type(params)]
    for code in KINDS[name].stays:
        if getattr(params, code):
            raise RequestError(f"{code} work in the engine's own process alone", code)
    stated = {item: getattr(params, item) for item in KINDS[name].defaults}
    return name, {item: value for item, value in stated.items() if value != KINDS[name].defaults[item]}


def unpacked(sent: Packed) -> tuple[EngineRequest, ...]:
    """The reverse of `packed`: what was shared is shared again."""
    kinds = [KINDS[name] for name, _ in sent.params]
    params = [_built(KINDS[name].params, stated) for name, stated in sent.params]
    requests: list[EngineRequest] = []
    for content in sent.requests:
        kind = kinds[content["params"]]
        own = {name: msgspec.convert(content[name], hint) for name, hint in kind.fields.items()}
        prompt = sent.prompts[content["prompt_token_ids"]]
        made: Any = kind.request
        requests.append(made(prompt_token_ids=prompt, params=params[content["params"]], **own))
    return tuple(requests)


def _built(kind: Any, stated: dict[str, Any]) -> Any:
    if kind is SamplingParams:  # which takes what is stated as it comes, and checks it
        return _params(stated)
    return msgspec.convert(stated, kind)


_NESTED: dict[str, type[Grammar] | type[Rule]] = {"grammar": Grammar, "rule": Rule}


def _params(stated: dict[str, Any]) -> SamplingParams:
    made = {name: kind(**stated[name]) for name, kind in _NESTED.items() if stated.get(name) is not None}
    return SamplingParams(**{**stated, **made})


def sent_error(error: NoriaError) -> SentError:
    return SentError(type(error).__name__, str(error), dict(vars(error)))


def error_of(sent: SentError) -> NoriaError:
    """The error again: its attributes are its class's keywords."""
    error: NoriaError = getattr(errors, sent.kind)(sent.message, **sent.details)
    return error
