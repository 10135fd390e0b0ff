"""How token ids become text: one class per family of decoders, each blind to how the ids are cut."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence
from typing import Protocol

import tokenizers

# More tokens than any character has bytes: a longer run without text is not an unfinished character.
MAX_PENDING = 8


class TextDecoder(Protocol):
    """Text of one sequence, in pieces. Unknown ids give no text."""

    def feed(self, token_ids: Sequence[int]) -> str: ...

    def flush(self) -> str: ...


class TokenPieces(Protocol):
    """The text side of a vocabulary."""

    def bytes_of(self, token_id: int) -> bytes:
        """What the token adds to a text that has begun; empty for unknown ids."""
        ...

    def start(self) -> TextDecoder:
        """A decoder for a text that begins with the first id."""
        ...

    def resume(self) -> TextDecoder:
        """A decoder for ids that follow others."""
        ...


class BytePieces:
    """Vocabularies in which a text's bytes are the joined bytes of its tokens: byte-level BPE, sentencepiece.

    texts: by id, as the vocabulary spells them; None where no token has the id.
    to_bytes: (id, spelling) -> bytes.
    num_leading_spaces: how many spaces the decoder takes off the start of a text.
    """

    def __init__(
        self,
        texts: Sequence[str | None],
        to_bytes: Callable[[int, str], bytes],
        num_leading_spaces: int = 0,
    ) -> None:
        self._texts = texts
        self._to_bytes = to_bytes
        self._num_leading_spaces = num_leading_spaces
        # Filled on first use: most of a vocabulary is never decoded, and starting up must be quick.
        self._bytes: list[bytes | None] = [None] * len(texts)

    def bytes_of(self, token_id: int) -> bytes:
        if not 0 <= token_id < len(self._bytes):
            return b""
        piece = self._bytes[token_id]
        if piece is None:
            text = self._texts[token_id]
            piece = b"" if text is None else self._to_bytes(token_id, text)
            self._bytes[token_id] = piece
        return piece

    def start(self) -> TextDecoder:
        return _ByteDecoder(self, self._num_leading_spaces)

    def resume(self) -> TextDecoder:
        return _ByteDecoder(self, 0)


class _ByteDecoder:
    """Joins bytes and decodes them as UTF-8; one U+FFFD per maximal ill-formed part, as Unicode recommends."""

    def __init__(self, pieces: BytePieces, num_leading_spaces: int) -> None:
        self._pieces = pieces
        self._num_leading_spaces = num_leading_spaces
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, token_ids: Sequence[int]) -> str:
        bytes_of = self._pieces.bytes_of
        data = b"".join([bytes_of(i) for i in token_ids])
        if self._num_leading_spaces and data:
            data = self._without_leading_spaces(data)
        return self._decoder.decode(data)

    def flush(self) -> str:
        return self._decoder.decode(b"", final=True)

    def _without_leading_spaces(self, data: bytes) -> bytes:
        num_spaces = min(len(data) - len(data.lstrip(b" ")), self._num_leading_spaces)
        is_past_start = num_spaces < len(data)
        self._num_leading_spaces = 0 if is_past_start else self._num_leading_spaces - num_spaces
        return data[num_spaces:]


class ContextPieces:
    """Any other decoder of a tokenizer.json (WordPiece, Metaspace, end-of-word suffixes, ...).

    Such decoders treat the first token of a text unlike the rest, and each other token by itself or by its left
    neighbour. So a token's text is what decoding it behind its neighbour adds to decoding the neighbour alone.
    """

    def __init__(self, backend: tokenizers.Tokenizer, num_tokens: int) -> None:
        self._backend = backend
        self._num_tokens = num_tokens
        self._neutral_id = self._find_neutral_id()

    def bytes_of(self, token_id: int) -> bytes:
        decoder = self.resume()
        return (decoder.feed([token_id]) + decoder.flush()).encode()

    def start(self) -> TextDecoder:
        return _ContextDecoder(self, [])

    def resume(self) -> TextDecoder:
        return _ContextDecoder(self, self._neutral_id)

    def is_known(self, token_id: int) -> bool:
        return 0 <= token_id < self._num_tokens and self._backend.id_to_token(token_id) is not None

    def decode(self, token_ids: list[int]) -> str:
        return self._backend.decode(token_ids, skip_special_tokens=False)

    def _find_neutral_id(self) -> list[int]:
        """An ordinary token to stand for the text before; empty when the vocabulary has no plain letter."""
        vocabulary = self._backend.get_vocab()
        return next(([vocabulary[letter]] for letter in "axe.0" if letter in vocabulary), [])


class _ContextDecoder:
    def __init__(self, pieces: ContextPieces, context: list[int]) -> None:
        self._pieces = pieces
        self._set_context(context)

    def feed(self, token_ids: Sequence[int]) -> str:
        return "".join([self._feed_one(i) for i in token_ids if self._pieces.is_known(i)])

    def flush(self) -> str:
        return self._emit(self._pieces.decode(self._context + self._pending)) if self._pending else ""

    def _feed_one(self, token_id: int) -> str:
        self._pending.append(token_id)
        text = self._pieces.decode(self._context + self._pending)
        may_be_unfinished = text.endswith("\ufffd") and len(self._pending) < MAX_PENDING
        return "" if may_be_unfinished else self._emit(text)

    def _emit(self, text: str) -> str:
        new_text = text[len(self._context_text) :]
        self._set_context(self._pending)
        return new_text

    def _set_context(self, context: list[int]) -> None:
        self._context = context
        self._context_text = self._pieces.decode(context)
        self._pending: list[int] = []
