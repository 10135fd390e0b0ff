"""Any OpenAI-compatible server as a target."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import orjson

from noria.bench.exposition import sample_of
from noria.bench.http_client import Exchange, HttpClient, parse_origin
from noria.bench.outcome import Status
from noria.bench.pieces import Piece, Planned
from noria.bench.stream import Reply, read_reply
from noria.bench.target import Answer, OnAnswer, Sample, TargetFacts
from noria.bench.texts import Count
from noria.bench.vocabulary import Encode, Writer, vocabulary_of
from noria.config.benching import TargetOptions
from noria.config.errors import RequestError

_REFUSED = (429, 503)
_PROBE_WORDS = 16


@dataclass(frozen=True, slots=True)
class _Manner:
    """How requests are written. overhead: tokens that a chat's template adds to one message."""

    endpoint: str
    model: str
    fields: dict[str, Any]
    overhead: int = 0


class HttpTarget:
    """Made by `open_http_target`."""

    def __init__(
        self,
        client: HttpClient,
        facts: TargetFacts,
        manner: _Manner,
        writer: Writer,
        count_tokens: Count | None,
    ) -> None:
        self.facts = facts
        self.count_tokens = count_tokens
        self._client = client
        self._manner = manner
        self._writer = writer
        self._answers: dict[str, list[str]] = {}  # of conversations, by session
        self._path = "/v1/chat/completions" if manner.endpoint == "chat" else "/v1/completions"

    def send(self, planned: Planned, on_answer: OnAnswer) -> HttpFlight:
        body, num_planned = self._body(planned)
        message = self._client.message("POST", self._path, body)
        flight = HttpFlight(self._client, on_answer, num_planned, lambda text: self._remember(planned, text))
        flight.exchange = self._client.send(message, flight.ended)
        return flight

    async def sample(self) -> Sample | None:
        if not self.facts.is_noria:
            return None
        exchange = await self._client.fetch("GET", "/metrics", limit_s=5.0)
        if exchange.status != 200:
            return None
        return sample_of(exchange.end_s, exchange.body.decode(errors="replace"))

    def steps(self) -> list[dict[str, Any]]:
        return []

    def close(self) -> None:
        self._client.close()

    def _body(self, planned: Planned) -> tuple[bytes, int | None]:
        """A request's body, and the length of its prompt where that is known."""
        fields = {"model": self._manner.model, "max_tokens": planned.num_output, **self._manner.fields}
        if self._manner.endpoint == "chat":
            fields["messages"], num_planned = self._messages(planned)
        else:
            fields["prompt"], num_planned = self._prompt(planned)
        return orjson.dumps(fields, option=orjson.OPT_SERIALIZE_NUMPY), num_planned

    def _prompt(self, planned: Planned) -> tuple[Any, int | None]:
        if planned.text is not None:
            return planned.text, None
        if len(self._writer.vocabulary.ids):
            return self._writer.ids(planned.pieces), planned.num_prompt
        return self._writer.text(planned.pieces), planned.num_prompt

    def _messages(self, planned: Planned) -> tuple[list[dict[str, str]], int | None]:
        if planned.text is not None:
            return [{"role": "user", "content": planned.text}], None
        if len(planned.pieces) == 1 or all(piece.role == "user" for piece in planned.pieces):
            pieces = _shortened(planned.pieces, self._manner.overhead)
            return [{"role": "user", "content": self._writer.text(pieces)}], planned.num_prompt
        # What several messages come to depends on the template and on what was really answered.
        said = iter(self._answers.get(planned.session or "", ()))
        return [self._message(piece, said) for piece in planned.pieces], None

    def _message(self, piece: Piece, said: Any) -> dict[str, str]:
        text = next(said, None) if piece.role == "assistant" else None
        return {"role": piece.role, "content": self._writer.text([piece]) if text is None else text}

    def _remember(self, planned: Planned, text: str) -> None:
        if planned.session is not None and self._manner.endpoint == "chat":
            self._answers.setdefault(planned.session, []).append(text)


def _shortened(pieces: tuple[Piece, ...], overhead: int) -> list[Piece]:
    """The same prompt with its last piece shorter by what the template adds, at least one token long."""
    *first, last = pieces
    return [*first, Piece(last.name, max(1, last.num_tokens - overhead), last.role)]


class HttpFlight:
    """One request that is under way."""

    def __init__(
        self,
        client: HttpClient,
        on_answer: OnAnswer,
        num_planned: int | None,
        remember: Callable[[str], None],
    ) -> None:
        self.exchange: Exchange | None = None
        self._client = client
        self._on_answer = on_answer
        self._num_planned = num_planned
        self._remember = remember
        self._early: Status | None = None

    @property
    def has_token(self) -> bool:
        return self.exchange is not None and self.exchange.status in (0, 200) and bool(self.exchange.arrived)

    def end(self, status: Status) -> None:
        assert self.exchange is not None
        if not self.exchange.is_done:
            self._early = status
            self._client.abandon(self.exchange, status.value)

    def ended(self, exchange: Exchange) -> None:
        reply = read_reply(exchange.arrived)
        status, error = _judged(exchange, reply)
        if status is Status.OK:
            self._remember(reply.text)
        elif self._early is not None:
            status = self._early
        self._on_answer(_answer(exchange, reply, status, error, self._num_planned))


def _judged(exchange: Exchange, reply: Reply) -> tuple[Status, str]:
    if exchange.status in _REFUSED:
        return Status.REJECTED, f"HTTP {exchange.status}: {_shorten(exchange.body)}"
    if exchange.status not in (0, 200):
        return Status.ERROR, f"HTTP {exchange.status}: {_shorten(exchange.body)}"
    error = exchange.error or reply.error
    if not error and not reply.chunk_s:
        error = "the answer had no tokens"
    return (Status.ERROR, error) if error else (Status.OK, "")


def _answer(exchange: Exchange, reply: Reply, status: Status, error: str, num_planned: int | None) -> Answer:
    num_output = sum(reply.chunk_tokens) if reply.num_output is None else reply.num_output
    return Answer(
        sent_s=exchange.sent_s or exchange.end_s,
        chunk_s=reply.chunk_s,
        chunk_tokens=reply.chunk_tokens,
        end_s=exchange.end_s,
        status=status,
        num_prompt=reply.num_prompt if reply.num_prompt is not None else num_planned or 0,
        num_output=num_output,
        num_planned=num_planned,
        num_cached=reply.num_cached,
        error=error,
        text=reply.text,
    )


def _shorten(body: bytes) -> str:
    return body.decode(errors="replace").strip()[:300]


async def open_http_target(options: TargetOptions, tokenizer: Encode | None, seed: int) -> HttpTarget:
    """Ask a server what it serves, and get ready to write prompts for it.

    tokenizer: of the user's own files, or None to ask the server. Raises ConfigError, RequestError.
    """
    assert options.base_url is not None
    headers = {} if options.api_key is None else {"Authorization": f"Bearer {options.api_key}"}
    client = HttpClient(parse_origin(options.base_url), headers)
    card = await _card(client, options)
    facts = await _facts(client, card, options)
    encode = tokenizer or await _server_encoder(client, card["id"])
    writer = Writer(await asyncio.to_thread(vocabulary_of, encode), seed)
    manner = _Manner(options.endpoint, card["id"], _fields(options))
    if options.endpoint == "chat":
        manner = replace(manner, overhead=await _overhead(client, manner, writer))
    count = None if encode is None else _counter(encode)
    return HttpTarget(client, facts, manner, writer, count)


def _counter(encode: Encode) -> Count:
    return lambda text: len(encode(text))


def _fields(options: TargetOptions) -> dict[str, Any]:
    usage: dict[str, Any] = {"include_usage": True}
    if options.exact_chunks:
        usage["continuous_usage_stats"] = True
    fields: dict[str, Any] = {"temperature": 0, "stream": True, "stream_options": usage}
    if options.ignore_eos:
        fields["ignore_eos"] = True
    return {**fields, **(options.extra_body or {})}


async def _card(client: HttpClient, options: TargetOptions) -> dict[str, Any]:
    """The entry of /v1/models that is asked for."""
    exchange = await client.fetch("GET", "/v1/models")
    if exchange.status != 200:
        what = f"HTTP {exchange.status}: {_shorten(exchange.body)}" if exchange.status else exchange.error
        raise RequestError(f"{options.base_url} does not list its models: {what}", "base_url")
    cards = [card for card in _json(exchange).get("data") or () if isinstance(card, dict) and card.get("id")]
    if options.request_model is not None:
        known = [card for card in cards if card["id"] == options.request_model]
        return known[0] if known else {"id": options.request_model}
    if not cards:
        raise RequestError(f"{options.base_url} lists no model; give --request-model", "request_model")
    return cards[0]


async def _facts(client: HttpClient, card: dict[str, Any], options: TargetOptions) -> TargetFacts:
    version, info = await asyncio.gather(client.fetch("GET", "/version"), client.fetch("GET", "/server_info"))
    is_noria = card.get("owned_by") == "noria"
    fingerprint: dict[str, Any] = {
        "engine": {"name": card.get("owned_by"), **(_json(version) if version.status == 200 else {})},
        "model": {"id": card["id"], "max_model_len": card.get("max_model_len")},
        "settings": {},
    }
    if info.status == 200:
        told = _json(info)
        fingerprint["settings"] = told.get("settings", told)
        fingerprint["model"] |= told.get("model") or {}
        fingerprint |= {key: told[key] for key in ("machine", "operating_point") if key in told}
    return TargetFacts(card["id"], card.get("max_model_len"), is_noria, fingerprint)


async def _server_encoder(client: HttpClient, model: str) -> Encode | None:
    """The server's own tokenizer, to be called from any thread but the loop's; None where it has no /tokenize."""
    if await _server_ids(client, model, " the") is None:
        return None
    loop = asyncio.get_running_loop()

    def encode(text: str) -> list[int]:
        ids = asyncio.run_coroutine_threadsafe(_server_ids(client, model, text), loop).result(60)
        if ids is None:
            raise RequestError("the server's /tokenize stopped answering")
        return ids

    return encode


async def _server_ids(client: HttpClient, model: str, text: str) -> list[int] | None:
    body = orjson.dumps({"model": model, "prompt": text, "add_special_tokens": False})
    exchange = await client.fetch("POST", "/tokenize", body)
    tokens = _json(exchange).get("tokens") if exchange.status == 200 else None
    return tokens if isinstance(tokens, list) else None


async def _overhead(client: HttpClient, manner: _Manner, writer: Writer) -> int:
    """What the chat template adds to one message, measured: by the server's own count of a probe."""
    text = writer.text([Piece("probe", _PROBE_WORDS)])
    body = {"model": manner.model, "messages": [{"role": "user", "content": text}], "max_tokens": 1}
    exchange = await client.fetch(
        "POST", "/v1/chat/completions", orjson.dumps({**body, "temperature": 0}), 120.0
    )
    usage = _json(exchange).get("usage") if exchange.status == 200 else None
    if not usage or "prompt_tokens" not in usage:
        raise RequestError(
            f"a first chat to measure the template failed: HTTP {exchange.status} {_shorten(exchange.body)}"
            f"{exchange.error}; a model without a chat template can be measured with --endpoint completions"
        )
    return max(0, int(usage["prompt_tokens"]) - _PROBE_WORDS)


def _json(exchange: Exchange) -> dict[str, Any]:
    try:
        content = orjson.loads(exchange.body)
    except orjson.JSONDecodeError:
        return {}
    return content if isinstance(content, dict) else {}
