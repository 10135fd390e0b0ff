"""What every source of a tokenizer is turned into."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import tokenizers

from noria.config.errors import ModelError
from noria.config.tokenizer import GgufVocabulary
from noria.tokenize.pieces import TokenPieces


@dataclass(frozen=True, slots=True)
class Backend:
    """encoder: text -> ids. pieces: ids -> text.

    num_tokens: one more than the highest id, added tokens included.
    adds_bos: what the source's kind does when nothing else is said; None leaves it to the encoder.
    """

    encoder: tokenizers.Tokenizer
    pieces: TokenPieces
    num_tokens: int
    special_ids: frozenset[int]
    adds_bos: bool | None = None


class TokenType:
    """Values of `tokenizer.ggml.token_type`."""

    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    BYTE = 6


def check_vocabulary(vocabulary: GgufVocabulary) -> None:
    """Raise ModelError unless the lists of the vocabulary fit each other."""
    num_tokens = len(vocabulary.tokens)
    if not num_tokens:
        raise ModelError("tokenizer.ggml.tokens is empty")
    for name, values in (("scores", vocabulary.scores), ("token_type", vocabulary.token_types)):
        if values and len(values) != num_tokens:
            raise ModelError(
                f"tokenizer.ggml.{name} has {len(values)} entries for {num_tokens} tokens; it needs one for each"
            )


def ids_of_types(vocabulary: GgufVocabulary, *types: int) -> list[int]:
    """Ids whose token type is one of `types`, ascending."""
    return [i for i, kind in enumerate(vocabulary.token_types) if kind in types]


def ids_by_text(texts: Sequence[str]) -> dict[str, int]:
    """The id of each text; of equal texts the lowest."""
    return dict(zip(reversed(texts), range(len(texts) - 1, -1, -1), strict=True))


def add_whole_tokens(
    encoder: tokenizers.Tokenizer, texts: Sequence[str], special_ids: Sequence[int], plain_ids: Sequence[int]
) -> None:
    """Have these tokens recognised whole wherever they are in a text, before anything is split or normalised."""
    for ids, is_special in ((special_ids, True), (plain_ids, False)):
        added = [
            tokenizers.AddedToken(texts[i], special=is_special, normalized=False) for i in ids if texts[i]
        ]
        if added:
            encoder.add_tokens(added)
