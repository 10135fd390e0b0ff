"""The items of a response: a message, reasoning or a call each, and the events that tell of one as it grows."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from noria.parsers.parts import CallArguments, CallBegin, Part, Reasoning
from noria.server.encoders.blocks import Block

Event = tuple[str, dict[str, Any]]  # its type, without `response.`, and its members


@dataclass(slots=True)
class Item:
    """begin: the part that opened it. index: among the response's items. logprobs: of its text, as they are told.

    seals: reasoning bears what a client sends back to go on from it.
    """

    begin: Part
    id: str
    index: int
    seals: bool = False
    texts: list[str] = field(default_factory=list)
    logprobs: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def of(cls, block: Block, item_id: str, index: int, seals: bool) -> Item:
        return cls(block.begin, item_id, index, seals, [block.text])

    def takes(self, part: Part) -> bool:
        """Whether more of this kind goes on here."""
        return isinstance(part, CallArguments) or (
            type(part) is type(self.begin) and not isinstance(part, CallBegin)
        )

    def opening(self) -> Iterator[Event]:
        item = self.whole("in_progress")
        if self._is_message:
            item["content"] = []
        yield "output_item.added", {"output_index": self.index, "item": item}
        if self._is_message:
            yield "content_part.added", {**self._place(), "part": self._text_part()}

    def delta(self, text: str, logprobs: list[dict[str, Any]]) -> Event:
        self.texts.append(text)
        self.logprobs += logprobs
        told: dict[str, Any] = {**self._place(), "delta": text}
        if self._is_message:
            told["logprobs"] = logprobs
        return f"{self._word}.delta", told

    def closing(self, status: str) -> Iterator[Event]:
        text = "".join(self.texts)
        if isinstance(self.begin, CallBegin):
            name = {} if self.begin.is_custom else {"name": self.begin.name}
            yield f"{self._word}.done", {**self._place(), **name, _member_of(self.begin): text}
        elif self._is_message:
            part = self._text_part()
            yield f"{self._word}.done", {**self._place(), "text": text, "logprobs": part["logprobs"]}
            yield "content_part.done", {**self._place(), "part": part}
        else:
            yield f"{self._word}.done", {**self._place(), "text": text}
        yield "output_item.done", {"output_index": self.index, "item": self.whole(status)}

    def whole(self, status: str) -> dict[str, Any]:
        text = "".join(self.texts)
        if isinstance(self.begin, CallBegin):
            kind = "custom_tool_call" if self.begin.is_custom else "function_call"
            call = {"call_id": self.begin.id, "name": self.begin.name, _member_of(self.begin): text}
            return {"type": kind, "id": self.id, "status": status, **call}
        if isinstance(self.begin, Reasoning):
            return {
                "type": "reasoning",
                "id": self.id,
                "status": status,
                "summary": [],
                "content": [{"type": "reasoning_text", "text": text}] if text else [],
                "encrypted_content": sealed(text) if self.seals else None,
            }
        content = [self._text_part()]
        return {"type": "message", "id": self.id, "status": status, "role": "assistant", "content": content}

    @property
    def _is_message(self) -> bool:
        return not isinstance(self.begin, (CallBegin, Reasoning))

    @property
    def _word(self) -> str:
        if isinstance(self.begin, CallBegin):
            return "custom_tool_call_input" if self.begin.is_custom else "function_call_arguments"
        return "output_text" if self._is_message else "reasoning_text"

    def _place(self) -> dict[str, Any]:
        place: dict[str, Any] = {"item_id": self.id, "output_index": self.index}
        return place if isinstance(self.begin, CallBegin) else {**place, "content_index": 0}

    def _text_part(self) -> dict[str, Any]:
        text = "".join(self.texts)
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": list(self.logprobs)}


def _member_of(begin: CallBegin) -> str:
    return "input" if begin.is_custom else "arguments"


def sealed(text: str) -> str:
    """Reasoning as a client keeps it without reading it. (It is no secret: the client may have the text as well.)"""
    return base64.b64encode(text.encode()).decode()


def unsealed(content: str) -> str | None:
    """The reasoning; None for what nobody sealed here."""
    try:
        return base64.b64decode(content, validate=True).decode()
    except (binascii.Error, ValueError):
        return None


def begin_of(part: Part) -> str:
    """How the ids of such items begin."""
    if isinstance(part, CallBegin):
        return "ctc_" if part.is_custom else "fc_"
    return "rs_" if isinstance(part, Reasoning) else "msg_"
