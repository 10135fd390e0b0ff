"""Fewer, bigger chunks: several tokens of a choice in one."""

from __future__ import annotations

from typing import Any

from noria.parsers.parts import joined
from noria.server.encoders.reply import ChoiceResult, Encoder
from noria.server.errors import ApiError
from noria.server.turn import ChoiceEvent


def paced(encoder: Encoder, interval: int) -> Encoder:
    """An encoder whose chunks hold `interval` tokens; a choice's first, and what ends it, do not wait for others."""
    return encoder if interval == 1 else _PacedEncoder(encoder, interval)


class _PacedEncoder:
    def __init__(self, encoder: Encoder, interval: int) -> None:
        self.keep_alive = encoder.keep_alive
        self._encoder = encoder
        self._interval = interval
        self._held: dict[int, ChoiceEvent] = {}  # by choice; there from its first event on

    def begin(self) -> bytes:
        return self._encoder.begin()

    def encode(self, event: ChoiceEvent) -> bytes:
        held = self._held.get(event.index)
        gathered = event if held is None else _joined(held, event)
        is_due = held is None or event.finish is not None or len(gathered.token_ids) >= self._interval
        self._held[event.index] = ChoiceEvent(event.index) if is_due else gathered
        return self._encoder.encode(gathered) if is_due else b""

    def end(self) -> bytes:
        return self._encoder.end()

    def fail(self, error: ApiError) -> bytes:
        held = b"".join(self._encoder.encode(event) for event in self._held.values() if event.token_ids)
        return held + self._encoder.fail(error)

    def whole(self, choices: list[ChoiceResult]) -> dict[str, Any]:
        return self._encoder.whole(choices)


def _joined(first: ChoiceEvent, then: ChoiceEvent) -> ChoiceEvent:
    return ChoiceEvent(
        then.index,
        joined(first.parts + then.parts),
        first.token_ids + then.token_ids,
        first.logprobs + then.logprobs,
        first.text_offsets + then.text_offsets,
        first.prompt_logprobs + then.prompt_logprobs,
        then.finish,
        then.stop_reason,
    )
