"""Text around markers, to which the space beside it belongs."""

from __future__ import annotations

from noria.parsers.steps import SPACE


class SpacedText:
    """Passes text through, holding back the space at its end, which goes with a marker if one follows."""

    def __init__(self, follows_marker: bool = False) -> None:
        self._space = ""
        self._follows_marker = follows_marker

    def feed(self, text: str) -> str:
        if self._follows_marker:
            text = text.lstrip(SPACE)
            self._follows_marker = not text
        whole = self._space + text
        certain = whole.rstrip(SPACE)
        self._space = whole[len(certain) :]
        return certain

    def drop_space(self) -> None:
        """A marker stands here: space before it, and what follows, is its own."""
        self._space = ""
        self._follows_marker = True

    def flush(self) -> str:
        """The text ends here."""
        space, self._space = self._space, ""
        return space
