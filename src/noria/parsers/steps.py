"""Reading text that comes a character at a time with code that reads as if it were all there.

A reader is a generator that is sent characters, and `""` where the text ends. What it does depends on the characters
alone, so it cannot know how they were cut into pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TypeVar

Result = TypeVar("Result")
Steps = Generator[None, str, Result]

SPACE = " \t\r\n"
MAX_HEAD = 16 * 1024  # characters that a call may take before it is known to be one


class NotACall(Exception):
    """What is read is no call, or no more of one."""


class Cursor:
    """The characters that were sent.

    unclaimed: those taken, or looked at, that belong to no call so far: they are text if none comes of them.
    """

    def __init__(self) -> None:
        self.unclaimed = ""
        self._is_in_call = False
        self._looked_at: str | None = None

    def peek(self) -> Steps[str]:
        """The next character; "" where the text ends."""
        if self._looked_at is None:
            if len(self.unclaimed) > MAX_HEAD:
                raise NotACall
            self._looked_at = yield
            self.unclaimed += self._looked_at
        return self._looked_at

    def take(self) -> Steps[str]:
        """The next character. Raises NotACall where the text ends."""
        character = yield from self.peek()
        if not character:
            raise NotACall
        self._looked_at = None
        if self._is_in_call:
            self.claim()
        return character

    def claim(self) -> None:
        """What was taken is no text."""
        self.unclaimed = self._looked_at or ""

    def begin_call(self) -> None:
        """What was taken, and what will be until `end_call`, belongs to a call."""
        self._is_in_call = True
        self.claim()

    def end_call(self) -> None:
        self._is_in_call = False

    def skip_space(self) -> Steps[str]:
        """The first character that is none; it is not taken."""
        while (character := (yield from self.peek())) and character in SPACE:
            yield from self.take()
        return character

    def expect(self, text: str) -> Steps[None]:
        """Takes exactly that text. Raises NotACall at another."""
        for wanted in text:
            if (yield from self.peek()) != wanted:
                raise NotACall
            yield from self.take()

    def until(
        self, ends: tuple[str, ...], tell: Callable[[str], None] | None = None
    ) -> Steps[tuple[str, str]]:
        """What comes before the first of `ends`, and which it was; that one is taken too.

        ends: none holds another. tell: gets the text before as it becomes certain, instead of its being returned.
        """
        written: list[str] = []
        tell = tell or written.append
        text = ""
        while True:
            text += yield from self.take()
            certain = _certain(text, ends)
            tell(text[:certain])
            text = text[certain:]
            if text in ends:
                return "".join(written), text


def _certain(text: str, ends: tuple[str, ...]) -> int:
    """How many of its first characters belong to none of the ends, however it goes on."""
    longest = min(max(map(len, ends)), len(text))
    for size in range(longest, 0, -1):
        if any(end.startswith(text[-size:]) for end in ends):
            return len(text) - size
    return len(text)
