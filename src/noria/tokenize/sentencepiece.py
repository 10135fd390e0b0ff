"""Sentencepiece-style BPE: vocabularies of GGUF kind "llama".

Pieces carry scores instead of merges. The original algorithm joins, again and again, the neighbours whose joined
text is the piece of highest score, the leftmost first. That is BPE with a merge for every way to cut a piece into
two pieces, ranked by the score of the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

import tokenizers
from tokenizers import models, normalizers

from noria.config.errors import ModelError
from noria.config.tokenizer import GgufVocabulary
from noria.tokenize.backend import (
    Backend,
    TokenType,
    add_whole_tokens,
    check_vocabulary,
    ids_by_text,
    ids_of_types,
)
from noria.tokenize.pieces import BytePieces

SPACE = "\u2581"  # how pieces spell a space


def build_sentencepiece(vocabulary: GgufVocabulary) -> Backend:
    """A GGUF vocabulary of kind "llama". Raises ModelError for one that is inconsistent."""
    check_vocabulary(vocabulary)
    special_ids = ids_of_types(vocabulary, TokenType.CONTROL, TokenType.UNKNOWN)
    plain_ids = ids_of_types(vocabulary, TokenType.USER_DEFINED)
    byte_values = {i: _byte_value(vocabulary, i) for i in ids_of_types(vocabulary, TokenType.BYTE)}
    # User-defined tokens are matched in the text as the user writes it, so there their spaces are spaces.
    texts = list(vocabulary.tokens)
    for i in plain_ids:
        texts[i] = texts[i].replace(SPACE, " ")

    merges = _merges(vocabulary, {*special_ids, *plain_ids, *byte_values})
    unknown_id = _unknown_id(vocabulary)
    encoder = tokenizers.Tokenizer(
        models.BPE(
            vocab=ids_by_text(texts),
            merges=list(merges),
            unk_token=None if unknown_id is None else texts[unknown_id],
            fuse_unk=True,
            byte_fallback=bool(byte_values),
        )
    )
    encoder.normalizer = _normalizer(vocabulary.add_space_prefix)
    add_whole_tokens(encoder, texts, special_ids, plain_ids)
    read = _reader(byte_values, frozenset({*special_ids, *plain_ids}))
    pieces = BytePieces(texts, read, num_leading_spaces=int(vocabulary.add_space_prefix))
    return Backend(encoder, pieces, len(texts), frozenset(special_ids), adds_bos=True)


def _byte_value(vocabulary: GgufVocabulary, token_id: int) -> int:
    text = vocabulary.tokens[token_id]
    value = byte_of_piece(text)
    if value is None:
        raise ModelError(
            f"token {token_id} has the type of a byte but reads {text!r}; byte tokens read <0x0A>"
        )
    return value


def byte_of_piece(text: str) -> int | None:
    """10 for "<0x0A>"; None for anything that is not spelled like that."""
    if len(text) != 6 or not text.startswith("<0x") or text[5] != ">":
        return None
    try:
        return int(text[3:5], 16)
    except ValueError:
        return None


def _unknown_id(vocabulary: GgufVocabulary) -> int | None:
    token_id = vocabulary.unknown_token_id
    if token_id is None:
        return next(iter(ids_of_types(vocabulary, TokenType.UNKNOWN)), None)
    if not 0 <= token_id < len(vocabulary.tokens):
        raise ModelError(
            f"tokenizer.ggml.unknown_token_id is {token_id}; the vocabulary has {len(vocabulary.tokens)} tokens"
        )
    return token_id


def _merges(vocabulary: GgufVocabulary, excluded: Collection[int]) -> Iterator[tuple[str, str]]:
    """Every way to cut a piece into two, best pieces first.

    excluded: tokens that no text is merged into: a control token typed out by a user must not become one.
    """
    tokens, scores = vocabulary.tokens, vocabulary.scores
    ids = [i for i in range(len(tokens)) if i not in excluded]
    if scores:
        ids.sort(key=lambda i: -scores[i])  # equal scores keep the order of ids
    mergeable = {tokens[i] for i in ids}
    for i in ids:
        piece = tokens[i]
        for cut in range(1, len(piece)):
            left, right = piece[:cut], piece[cut:]
            if left in mergeable and right in mergeable:
                yield left, right


def _normalizer(adds_space: bool) -> normalizers.Normalizer:
    spaces = normalizers.Replace(" ", SPACE)
    return normalizers.Sequence([normalizers.Prepend(SPACE), spaces]) if adds_space else spaces


def _reader(byte_values: dict[int, int], literal_ids: frozenset[int]) -> Callable[[int, str], bytes]:
    def read(token_id: int, text: str) -> bytes:
        if token_id in byte_values:
            return bytes((byte_values[token_id],))
        return (text if token_id in literal_ids else text.replace(SPACE, " ")).encode()

    return read
