"""Where readers of tool calls put what they read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from noria.parsers.parts import CallArguments, CallBegin, Part
from noria.parsers.steps import Cursor, NotACall

MakeId = Callable[[int, str], str]  # of a call, from its index and its tool's name


class CallSink:
    """tools: by name, the schema of its arguments. max_calls: later ones are read and dropped; None: all are kept."""

    def __init__(
        self, tools: Mapping[str, Mapping[str, Any]], make_id: MakeId, max_calls: int | None = None
    ) -> None:
        self.parts: list[Part] = []  # not taken yet
        self.num_calls = 0
        self.tools = tools
        self._make_id = make_id
        self._max_calls = max_calls

    def begin(self, cursor: Cursor, name: str) -> Mapping[str, Any]:
        """A call begins where the cursor is. The schema of its arguments. Raises NotACall: no tool has that name."""
        if name not in self.tools:
            raise NotACall
        cursor.begin_call()
        index = self.num_calls
        self.num_calls += 1
        if self._is_kept:
            self.parts.append(CallBegin(index, self._make_id(index, name), name))
        return self.tools[name]

    def tell(self, text: str) -> None:
        """More of the latest call's arguments."""
        if text and self._is_kept:
            self.parts.append(CallArguments(self.num_calls - 1, text))

    def take(self) -> list[Part]:
        parts, self.parts = self.parts, []
        return parts

    @property
    def _is_kept(self) -> bool:
        return self._max_calls is None or self.num_calls <= self._max_calls
