"""A model's reasoning, told apart from its answer as it comes."""

from __future__ import annotations

from enum import Enum

from noria.parsers.formats import ReasoningFormat
from noria.parsers.markers import find_first
from noria.parsers.parts import Content, Part, Reasoning
from noria.parsers.spacing import SpacedText
from noria.parsers.steps import SPACE


class Place(Enum):
    """Where in an answer the text is."""

    START = "start"  # before anything but space: the answer may begin with reasoning
    REASONING = "reasoning"
    ANSWER = "answer"


class ReasoningReader:
    """Parts of a text that begins with reasoning, or not. Joined, they are the same however the text was cut.

    place: where the text begins; in REASONING if the prompt ends with the begin marker.
    num_characters: how much of the text so far was reasoning, its markers and the space at them included.

    Space around markers is theirs. An end marker where nothing was begun is text.
    """

    def __init__(self, reasoning_format: ReasoningFormat, place: Place = Place.START) -> None:
        self._format = reasoning_format
        self._place = place
        self._text = ""  # not looked at yet
        self._thought = SpacedText(follows_marker=True)
        self._skips_space = False
        self.num_characters = 0

    @property
    def is_over(self) -> bool:
        """All that follows is the answer."""
        return self._place is Place.ANSWER

    def feed(self, text: str) -> list[Part]:
        if self._place is Place.ANSWER:
            return self._answer(text)
        self._text += text
        if self._place is Place.START and not self._leave_start():
            return []
        if self._place is Place.REASONING:
            return self._think()
        text, self._text = self._text, ""
        return self._answer(text)

    def finish(self) -> list[Part]:
        """The text ends here: what was held back."""
        text, self._text = self._text, ""
        if self._place is Place.REASONING:
            self.num_characters += len(text)
            thought = self._thought.feed(text)  # what might have become the end marker
            return [Reasoning(thought)] if thought else []
        return self._answer(text)

    def _leave_start(self) -> bool:
        """Whether it is known where the text is; a begin marker is taken off it."""
        begin, stripped = self._format.begin, self._text.lstrip(SPACE)
        if stripped.startswith(begin):
            self.num_characters += len(self._text) - len(stripped) + len(begin)
            self._text = stripped.removeprefix(begin)
            self._place = Place.REASONING
            return True
        if begin.startswith(stripped):
            return False
        self._place = Place.ANSWER
        return True

    def _think(self) -> list[Part]:
        start, marker = find_first(self._text, (self._format.end,))
        read = start + len(marker or "")
        self.num_characters += read
        thought, rest = self._thought.feed(self._text[:start]), self._text[read:]
        told: list[Part] = [Reasoning(thought)] if thought else []
        if marker is None:
            self._text = rest
            return told
        self._text, self._place, self._skips_space = "", Place.ANSWER, True
        return told + self._answer(rest)

    def _answer(self, text: str) -> list[Part]:
        if self._skips_space:
            text = text.lstrip(SPACE)
            self._skips_space = not text
        return [Content(text)] if text else []
