"""One HTTP request's sequences, from submission to their last words, as neutral events.

Every protocol's encoder reads these events; none of them knows of the engine, and the engine knows of none.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from random import Random

from noria.core.outputs import Delta, FinishReason
from noria.core.plan import TokenLogprobs
from noria.engine.messages import expand_choices
from noria.parsers.parts import Part, text_of
from noria.parsers.reading import PLAIN_READING, Reading
from noria.parsers.reply import AnswerReader
from noria.sampling.params import SamplingParams
from noria.server.bridge import Bridge, Inbox
from noria.server.errors import (
    ApiError,
    deadline_passed,
    engine_lost,
    internal_error,
    reader_too_slow,
    unavailable,
)
from noria.server.terms import PLAIN_TERMS, Terms
from noria.tokenize.output import OutputStream
from noria.tokenize.tokenizer import Tokenizer

logger = logging.getLogger("noria.server")

FAILURES = (
    FinishReason.ABORT,
    FinishReason.TIMEOUT,
    FinishReason.ERROR,
    FinishReason.FAULT,
    FinishReason.LOST,
)


@dataclass(frozen=True, slots=True)
class ChoiceEvent:
    """News of one choice.

    parts: what was said and is now certain, in order. token_ids, logprobs, text_offsets: of the tokens that came with
        this news, whether or not their text is certain yet; logprobs are empty unless asked for.
    prompt_logprobs: of prompt positions from 1 on, in order, each once over all events of the choice.
    finish: None until the choice's last event; stop_reason: the stop string or stop token id, if one it was.
    """

    index: int
    parts: tuple[Part, ...] = ()
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] = ()
    text_offsets: tuple[int, ...] = ()
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()
    finish: str | None = None
    stop_reason: str | int | None = None

    @property
    def text(self) -> str:
        """For the user."""
        return text_of(self.parts)


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """What to generate: params.n choices of each prompt. Choice i of prompt p has index p * n + i."""

    request_id: str  # unique among the requests in the engine
    prompts: tuple[tuple[int, ...], ...]
    params: tuple[SamplingParams, ...]  # one a prompt; they differ in max_tokens alone
    terms: Terms = PLAIN_TERMS
    reading: Reading = PLAIN_READING

    @property
    def n(self) -> int:
        return self.params[0].n


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of a turn so far. A prompt counts once, however many choices it has."""

    num_prompt: int
    num_output: int
    num_cached: int
    num_reasoning: int = 0  # of the output


class _Choice:
    """A sequence while it runs."""

    def __init__(self, index: int, output: OutputStream, reader: AnswerReader) -> None:
        self.index = index
        self.num_tokens = 0
        self.num_cached = 0
        self.is_done = False
        self._output = output
        self._reader = reader

    @property
    def num_reasoning(self) -> int:
        return self._reader.num_reasoning_tokens

    def absorb(self, delta: Delta) -> ChoiceEvent:
        finish = delta.finish.value if delta.finish is not None else None
        piece = self._output.feed(delta.token_ids, delta.stop_token_id, finish is not None)
        if piece.stop is not None:
            finish = FinishReason.STOP.value
        self.is_done = finish is not None
        self.num_tokens += piece.num_tokens
        self.num_cached = max(self.num_cached, delta.num_cached_tokens)
        return ChoiceEvent(
            self.index,
            self._reader.feed(piece.text, piece.text_offsets, self.is_done),
            delta.token_ids[: piece.num_tokens],
            delta.logprobs[: piece.num_tokens],
            piece.text_offsets,
            delta.prompt_logprobs,
            finish,
            self._output.stop_reason if self.is_done else None,
        )


class Turn:
    """Runs the sequences of one request. `close` it, however it ends: what still runs is cancelled."""

    def __init__(self, bridge: Bridge, tokenizer: Tokenizer, request: TurnRequest, random: Random) -> None:
        self.request = request
        self._bridge = bridge
        self._inbox = Inbox()
        terms, timeout_s = request.terms, request.terms.timeout_s()
        self._sequences = [
            replace(sequence, tenant=terms.tenant, timeout_s=timeout_s)
            for p, (prompt, params) in enumerate(zip(request.prompts, request.params, strict=True))
            for sequence in expand_choices(
                f"{request.request_id}-{p}", prompt, params, random, terms.priority, terms.cache_salt
            )
        ]
        reading = request.reading
        self._choices = {
            sequence.request_id: _Choice(
                i, OutputStream(tokenizer, sequence.params, reading.shown_ids), reading.reader()
            )
            for i, sequence in enumerate(self._sequences)
        }
        self._num_running = len(self._sequences)

    async def begin(self) -> None:
        """Submit. Raises RequestError, OverloadError and EngineError as the engine does."""
        await self._bridge.submit(self._sequences, self._inbox)

    @property
    def num_choices(self) -> int:
        return len(self._choices)

    @property
    def is_done(self) -> bool:
        """Every choice has had its last event."""
        return self._num_running == 0

    def usage(self) -> Usage:
        choices = self._choices.values()
        return Usage(
            num_prompt=sum(map(len, self.request.prompts)),
            num_output=sum(choice.num_tokens for choice in choices),
            num_cached=sum(choice.num_cached for choice in choices if choice.index % self.request.n == 0),
            num_reasoning=sum(choice.num_reasoning for choice in choices),
        )

    def bound(self, max_unread: int, on_excess: Callable[[], None]) -> None:
        """End the turn with an error, and call `on_excess`, when more tokens a choice wait while it is `held`."""

        def end() -> None:
            self.close()
            self._inbox.fail(reader_too_slow())
            on_excess()

        self._inbox.bound(max_unread * self.num_choices, end)

    @contextmanager
    def held(self) -> Iterator[None]:
        """While the client is waited for: a wait for the event loop's own work is not its fault."""
        self._inbox.is_held = True
        try:
            yield
        finally:
            self._inbox.is_held = False

    def nudge(self) -> None:
        """Make a waiting `events` return, with nothing if need be."""
        self._inbox.nudge()

    async def events(self) -> Iterator[ChoiceEvent]:
        """What has happened since the last call, in order; `usage` follows as the events are drawn.

        Raises ApiError when a sequence failed, at once or while the events are drawn.
        """
        return self._absorb_all(await self._inbox.take())

    def close(self) -> None:
        self._bridge.cancel(list(self._choices))

    def _absorb_all(self, deltas: list[Delta]) -> Iterator[ChoiceEvent]:
        for delta in deltas:
            choice = self._choices[delta.request_id]
            if choice.is_done:
                continue  # it came with, or after, the token that completed a stop string
            is_aborted = delta.finish is FinishReason.ABORT and self._inbox.is_aborted
            if delta.finish in FAILURES and not is_aborted:
                raise failure_of(delta, self.request.terms.time_s)
            event = choice.absorb(delta)
            if choice.is_done:
                self._num_running -= 1
                self._bridge.stop(delta.request_id)
            yield event


def failure_of(delta: Delta, time_s: float | None) -> ApiError:
    """What a sequence that ended so is answered with. time_s: what the request had until its deadline."""
    if delta.finish is FinishReason.LOST:
        logger.debug("sequence %s was lost with the engine: %s", delta.request_id, delta.error)
        return engine_lost()
    if delta.finish is FinishReason.FAULT:
        logger.error("sequence %s could not be computed: %s", delta.request_id, delta.error)
        return internal_error()
    if delta.finish is FinishReason.TIMEOUT:
        return deadline_passed(time_s)
    if delta.finish is FinishReason.ABORT:
        # Not by us: after our own cancel nothing of the sequence is delivered.
        return unavailable("The server ended this request before its answer was whole.", retry_after_s=5)
    return ApiError(delta.error or "This request could not be computed.")
