"""Text out of token ids as they arrive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from noria.tokenize.tokenizer import Tokenizer


class IncrementalDetokenizer:
    """Turns ids into text piece by piece; however they are cut, the joined pieces equal one decode of all.

    A piece never ends inside a character: bytes that may still become one wait for the next ids. `flush` ends the
    text; what waits then can become nothing any more, and each incomplete character gives one U+FFFD.

    skip_special_tokens: special tokens give no text.
    shown_ids: special tokens that give text all the same.
    continues: the ids follow others (a prompt), so the first word keeps its leading space; otherwise the text
        starts here, and tokenizers that put a space before the first word take it off again.
    Ids the tokenizer does not know (a model's vocabulary may be padded) give no text.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        skip_special_tokens: bool = True,
        *,
        continues: bool = False,
        shown_ids: frozenset[int] = frozenset(),
    ) -> None:
        pieces = tokenizer.pieces
        self._decoder = pieces.resume() if continues else pieces.start()
        self._skipped = tokenizer.special_ids - shown_ids if skip_special_tokens else frozenset()

    def feed(self, token_ids: Sequence[int]) -> str:
        """The text that is certain after these ids and was not before."""
        skipped = self._skipped
        return self._decoder.feed([i for i in token_ids if i not in skipped])

    def flush(self) -> str:
        """End the text: what was still waiting."""
        return self._decoder.flush()
