"""The prompt given back: its text, and where each of its tokens lies in it."""

from __future__ import annotations

from collections.abc import Sequence

from noria.tokenize.detokenize import IncrementalDetokenizer
from noria.tokenize.tokenizer import Tokenizer


class EchoedPrompt:
    """text: as it was given, or decoded. token_ids: its tokens.

    text_offsets: for each token, the characters of `text` before it. A token without text of its own (a special
    one that is left out, a part of a character) lies where the next text begins.
    """

    def __init__(
        self, tokenizer: Tokenizer, token_ids: Sequence[int], given: str | None, skip_special_tokens: bool
    ) -> None:
        detokenizer = IncrementalDetokenizer(tokenizer, skip_special_tokens)
        parts: list[str] = []
        offsets: list[int] = []
        num_characters = 0
        for token_id in token_ids:
            offsets.append(num_characters)
            parts.append(detokenizer.feed((token_id,)))
            num_characters += len(parts[-1])
        parts.append(detokenizer.flush())
        self.text = "".join(parts) if given is None else given
        self.token_ids = tuple(token_ids)
        # A text that the tokenizer normalised comes back as it was given; offsets then stay inside it.
        self.text_offsets = tuple(min(offset, len(self.text)) for offset in offsets)
