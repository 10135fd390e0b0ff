"""Byte-level BPE: GPT-2's alphabet of printable characters for bytes, and vocabularies of GGUF kind "gpt2"."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

import tokenizers
from tokenizers import models

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
from noria.tokenize.pre_tokenizers import find_pre_tokenizer

_NOT_A_BYTE = "\uffff"


def _byte_of_character() -> dict[int, str]:
    """A str.translate table from GPT-2's characters to the characters of Latin-1, which spells bytes as they are.

    Printable characters of Latin-1 stand for their own byte; the other bytes, in order, for U+0100 onwards.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    table = {byte: chr(byte) for byte in printable}
    table |= dict.fromkeys(others, _NOT_A_BYTE)
    table |= {0x100 + index: chr(byte) for index, byte in enumerate(others)}
    return table


_BYTE_OF_CHARACTER = _byte_of_character()


def bytes_of_spelling(text: str) -> bytes:
    """The bytes that a byte-level vocabulary means by `text`; text outside its alphabet means itself."""
    try:
        return text.translate(_BYTE_OF_CHARACTER).encode("latin-1")
    except UnicodeEncodeError:
        return text.encode()


def byte_level_pieces(texts: list[str | None], literal_ids: Collection[int]) -> BytePieces:
    """literal_ids: tokens spelled as they read (added tokens), whatever characters they have."""
    return BytePieces(texts, _reader(frozenset(literal_ids)))


def _reader(literal_ids: frozenset[int]) -> Callable[[int, str], bytes]:
    def read(token_id: int, text: str) -> bytes:
        return text.encode() if token_id in literal_ids else bytes_of_spelling(text)

    return read


def build_byte_level(vocabulary: GgufVocabulary) -> Backend:
    """A GGUF vocabulary of kind "gpt2". Raises ModelError for one that is inconsistent."""
    check_vocabulary(vocabulary)
    pre_tokenizer = find_pre_tokenizer(vocabulary.pre)
    tokens = vocabulary.tokens
    try:
        model = models.BPE(
            vocab=ids_by_text(tokens),
            merges=list(_split_merges(vocabulary.merges)),
            ignore_merges=pre_tokenizer.ignore_merges,
        )
    except Exception as error:  # the library raises nothing more specific
        raise ModelError(f"tokenizer.ggml.merges do not fit tokenizer.ggml.tokens: {error}") from error
    encoder = tokenizers.Tokenizer(model)
    encoder.pre_tokenizer = pre_tokenizer.build()
    normalizer = pre_tokenizer.build_normalizer()
    if normalizer is not None:
        encoder.normalizer = normalizer
    special_ids = ids_of_types(vocabulary, TokenType.CONTROL, TokenType.UNKNOWN)
    plain_ids = ids_of_types(vocabulary, TokenType.USER_DEFINED)
    add_whole_tokens(encoder, tokens, special_ids, plain_ids)
    pieces = byte_level_pieces(list(tokens), {*special_ids, *plain_ids})
    return Backend(encoder, pieces, len(tokens), frozenset(special_ids), pre_tokenizer.adds_bos)


def _split_merges(merges: Iterable[str]) -> Iterable[tuple[str, str]]:
    for merge in merges:
        # A token may itself begin with a space, so the separator is never the first character.
        middle = merge.find(" ", 1)
        if middle < 0:
            raise ModelError(
                f"tokenizer.ggml.merges holds {merge!r}; an entry is two tokens and a space between"
            )
        yield merge[:middle], merge[middle + 1 :]
