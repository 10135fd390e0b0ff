"""Bad words in the tokens that a model would write them with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from noria.sampling.params import SamplingParams
from noria.tokenize.tokenizer import Tokenizer


def with_bad_word_ids(params: SamplingParams, tokenizer: Tokenizer, vocab_size: int) -> SamplingParams:
    """The params with bad_word_ids for their bad_words, beside those that they name in ids already.

    vocab_size: of the model, which can write no token beyond it.
    """
    if not params.bad_words:
        return params
    ids = dict.fromkeys((*params.bad_word_ids, *_spellings(params.bad_words, tokenizer)))
    return replace(params, bad_word_ids=tuple(word for word in ids if max(word) < vocab_size))


def _spellings(words: Sequence[str], tokenizer: Tokenizer) -> list[tuple[int, ...]]:
    """Each word as a text begins with it, and as it follows a space, which is usually part of its first token."""
    bare = [word.strip(" ") for word in words]
    texts = [text for word, given in zip(bare, words, strict=True) for text in (word or given, f" {word}")]
    return [tuple(ids) for text in texts if (ids := tokenizer.encode(text, add_special_tokens=False))]
