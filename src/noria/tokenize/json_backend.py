"""Tokenizers described by a tokenizer.json."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import tokenizers

from noria.config.errors import ModelError
from noria.tokenize.backend import Backend
from noria.tokenize.byte_level import byte_level_pieces
from noria.tokenize.pieces import BytePieces, ContextPieces, TokenPieces
from noria.tokenize.sentencepiece import byte_of_piece


def build_from_json(text: str) -> Backend:
    """text: of a tokenizer.json. Raises ModelError when it cannot be read."""
    try:
        encoder = tokenizers.Tokenizer.from_str(text)
    except Exception as error:  # the library raises nothing more specific
        raise ModelError(f"the tokenizer.json cannot be read: {error}") from error
    # Lengths are the engine's business, whatever the model was trained with.
    encoder.no_truncation()
    encoder.no_padding()
    added = encoder.get_added_tokens_decoder()
    special_ids = frozenset(i for i, token in added.items() if token.special)
    vocabulary = encoder.get_vocab(with_added_tokens=True)
    num_tokens = max(vocabulary.values(), default=-1) + 1
    if not num_tokens:
        raise ModelError("the tokenizer.json has an empty vocabulary")
    texts: list[str | None] = [None] * num_tokens
    for token, token_id in vocabulary.items():
        texts[token_id] = token
    return Backend(encoder, _pieces(encoder, texts, frozenset(added)), num_tokens, special_ids)


def _pieces(encoder: tokenizers.Tokenizer, texts: list[str | None], added_ids: frozenset[int]) -> TokenPieces:
    steps = _decoder_steps(encoder)
    if [step["type"] for step in steps] in (["ByteLevel"], ["ByteLevel", "Fuse"]):
        return byte_level_pieces(texts, added_ids)
    chain = _read_chain(steps)
    if chain is not None:
        return BytePieces(texts, chain.reader(), chain.num_leading_spaces)
    return ContextPieces(encoder, len(texts))


def _decoder_steps(encoder: tokenizers.Tokenizer) -> list[Mapping[str, Any]]:
    """The decoder's parts in order; empty without one."""
    decoder = encoder.decoder
    if decoder is None:
        return []
    state = json.loads(decoder.__getstate__())
    return state["decoders"] if state["type"] == "Sequence" else [state]


@dataclass(frozen=True, slots=True)
class _Chain:
    """Sentencepiece's decoder: replace strings in each piece, turn byte pieces into bytes, join, take spaces off.

    # Replace* ByteFallback? Replace* Fuse Strip?
    """

    replacements: tuple[tuple[str, str], ...]
    has_bytes: bool
    num_leading_spaces: int

    def reader(self) -> Callable[[int, str], bytes]:
        replacements, has_bytes = self.replacements, self.has_bytes

        def read(token_id: int, text: str) -> bytes:
            value = byte_of_piece(text) if has_bytes else None
            if value is not None:
                return bytes((value,))
            for old, new in replacements:
                text = text.replace(old, new)
            return text.encode()

        return read


def _read_chain(steps: list[Mapping[str, Any]]) -> _Chain | None:
    """The decoder as a _Chain; None when it is of another form."""
    kinds = [step["type"] for step in steps]
    if "Fuse" not in kinds:
        return None
    before, after = steps[: kinds.index("Fuse")], steps[kinds.index("Fuse") + 1 :]
    replacements: list[tuple[str, str]] = []
    for step in before:
        pattern = step.get("pattern", {}).get("String")
        if step["type"] == "Replace" and pattern:
            replacements.append((pattern, step["content"]))
        elif step["type"] != "ByteFallback":
            return None
    num_leading_spaces = _leading_spaces(after)
    if num_leading_spaces is None:
        return None
    has_bytes = any(step["type"] == "ByteFallback" for step in before)
    return _Chain(tuple(replacements), has_bytes, num_leading_spaces)


def _leading_spaces(steps: list[Mapping[str, Any]]) -> int | None:
    if not steps:
        return 0
    strip = steps[0]
    is_leading = (
        len(steps) == 1 and strip["type"] == "Strip" and strip["content"] == " " and not strip["stop"]
    )
    return strip["start"] if is_leading else None
