"""A tokenizer as llguidance knows one: the bytes of every token."""

from __future__ import annotations

from collections.abc import Sequence

import llguidance

from noria.tokenize.tokenizer import Tokenizer

_MAX_KEPT = 4096  # texts whose tokens are remembered
_MAX_KEPT_TEXT = 200  # characters of each


class TokenBytes(llguidance.TokenizerWrapper):
    """What llguidance reads of a tokenizer.

    tokens: by id. A model's vocabulary may be padded beyond its tokenizer's: tokens without bytes are never allowed.
    """

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, eos_token_ids: Sequence[int]) -> None:
        # Not the base's own, which tries out how it is called.
        self.is_tokenizer_wrapper = True
        self._tokenizer = tokenizer
        self.eos_token_id = eos_token_ids[0]
        self.bos_token_id = tokenizer.bos_token_id
        self.tokens = [tokenizer.token_bytes(token_id) for token_id in range(vocab_size)]
        self.special_token_ids = sorted(i for i in tokenizer.special_ids if i < vocab_size)
        self._kept: dict[bytes | str, list[int]] = {}

    def __call__(self, text: bytes | str) -> list[int]:
        """Asked at every step about what a grammar forces, which is the same names again and again."""
        ids = self._kept.get(text)
        if ids is None:
            whole = text.decode(errors="replace") if isinstance(text, bytes) else text
            ids = self._tokenizer.encode(whole, add_special_tokens=False)
            if len(text) <= _MAX_KEPT_TEXT:
                if len(self._kept) >= _MAX_KEPT:
                    self._kept.clear()
                self._kept[text] = ids
        return ids


def build_vocabulary(
    tokenizer: Tokenizer, vocab_size: int, eos_token_ids: Sequence[int]
) -> llguidance.LLTokenizer:
    """Takes some tenths of a second, during which the interpreter does nothing else. eos_token_ids: at least one."""
    return llguidance.LLTokenizer(
        TokenBytes(tokenizer, vocab_size, eos_token_ids),
        n_vocab=vocab_size,
        eos_token=list(eos_token_ids),
    )


def special_texts(tokenizer: Tokenizer, vocab_size: int, eos_token_ids: Sequence[int]) -> dict[str, int]:
    """Ids of the special tokens that do not end an output, by their text."""
    within = (i for i in tokenizer.special_ids if i < vocab_size and i not in eos_token_ids)
    return {text: token_id for token_id in within if (text := tokenizer.token_text(token_id))}
