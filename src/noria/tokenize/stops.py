"""Stop strings in a stream of text, found wherever the text happens to be cut.

The text is read character by character, as a model would write it: the first stop string to be *completed* ends
it, and of two that complete at the same character the longer one counts, so that less of them stays in the
output. (Choosing by where a match starts would make the model write past a completed stop string.)

Each stop string has its own Knuth-Morris-Pratt state, so a character costs the same however long the strings
are, and the longest partial match is exactly the text that must be held back.
"""

from __future__ import annotations

from collections.abc import Sequence


class StopMatcher:
    """Passes text through, holding back only what may still become a stop string.

    stops: non-empty strings. include_stop: a matched stop string stays in the output.
    `stop` is the matched string, None so far; after a match everything fed is dropped.
    """

    def __init__(self, stops: Sequence[str], include_stop: bool = False) -> None:
        self._patterns = [_Pattern(text) for text in stops]
        self._first_characters = {text[0] for text in stops}
        self._include_stop = include_stop
        self._held = ""
        self.stop: str | None = None

    def feed(self, text: str) -> str:
        """Take text in which a stop string may complete; return what is now certain to be output."""
        if self.stop is not None:
            return ""
        if self._cannot_match(text):
            return text
        for position, character in enumerate(text):
            completed = self._step(character)
            if completed is not None:
                return self._end(completed, text[: position + 1])
        return self._release(text)

    def feed_protected(self, text: str) -> str:
        """Like feed, for text in which no stop string may complete, though one may begin."""
        if self.stop is not None:
            return ""
        if not self._cannot_match(text):
            for character in text:
                self._step(character)
        return self._release(text)

    def flush(self) -> str:
        """The text ends here: what was held back is output after all."""
        held, self._held = self._held, ""
        for pattern in self._patterns:
            pattern.num_matched = 0
        return held

    def _cannot_match(self, text: str) -> bool:
        return not self._held and self._first_characters.isdisjoint(text)

    def _step(self, character: str) -> str | None:
        """Advance every pattern by one character; the longest that this completes, if any."""
        completed = ""
        for pattern in self._patterns:
            if pattern.step(character) and len(pattern.text) > len(completed):
                completed = pattern.text
        return completed or None

    def _end(self, stop: str, text: str) -> str:
        self.stop = stop
        whole, self._held = self._held + text, ""
        return whole if self._include_stop else whole[: len(whole) - len(stop)]

    def _release(self, text: str) -> str:
        whole = self._held + text
        num_held = max((pattern.num_matched for pattern in self._patterns), default=0)
        certain = len(whole) - num_held
        self._held = whole[certain:]
        return whole[:certain]


class _Pattern:
    """One stop string and how much of it the text's end has matched.

    borders[n] is the length of the longest proper prefix of text[:n] that also ends it. The table grows with
    the longest partial match seen, so that an absurdly long stop string costs nothing until it is met.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.num_matched = 0
        self._borders = [0, 0]

    def step(self, character: str) -> bool:
        """Advance by one character; True when it completes the string. num_matched is then below its length."""
        matched = self._extend(self.num_matched, character)
        if matched == len(self._borders):
            self._borders.append(self._extend(self._borders[matched - 1], self.text[matched - 1]))
        is_complete = matched == len(self.text)
        self.num_matched = self._borders[matched] if is_complete else matched
        return is_complete

    def _extend(self, matched: int, character: str) -> int:
        text = self.text
        while matched and text[matched] != character:
            matched = self._borders[matched]
        return matched + 1 if text[matched] == character else 0
