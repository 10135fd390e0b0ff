"""Bad words in the tokens that a model would write them with."""

from __future__ import annotations

import pytest

from noria.sampling.params import SamplingParams
from noria.tokenize.bad_words import with_bad_word_ids
from noria.tokenize.tokenizer import Tokenizer
from support_vocabularies import byte_level_tokenizer, sentencepiece_tokenizer

TOKENIZERS = pytest.mark.parametrize("tokenizer", [byte_level_tokenizer(), sentencepiece_tokenizer()])


def ids_of(tokenizer: Tokenizer, *words: str, vocab_size: int | None = None) -> set[tuple[int, ...]]:
    params = SamplingParams(bad_words=words)
    return set(with_bad_word_ids(params, tokenizer, vocab_size or tokenizer.vocab_size).bad_word_ids)


@TOKENIZERS
def test_a_word_is_found_at_the_start_of_a_text_and_behind_a_space(tokenizer: Tokenizer) -> None:
    expected = {tuple(tokenizer.encode(text, add_special_tokens=False)) for text in ("water", " water")}
    assert ids_of(tokenizer, "water") == ids_of(tokenizer, " water") == expected


@TOKENIZERS
def test_every_word_counts_and_ids_that_were_given_stay(tokenizer: Tokenizer) -> None:
    both = ids_of(tokenizer, "water") | ids_of(tokenizer, "the wheel")
    assert ids_of(tokenizer, "water", "the wheel", "water") == both
    params = SamplingParams(bad_words=("water",), bad_word_ids=((5, 6),))
    filled = with_bad_word_ids(params, tokenizer, tokenizer.vocab_size).bad_word_ids
    assert set(filled) == {(5, 6), *ids_of(tokenizer, "water")}


def test_a_word_that_the_model_has_no_tokens_for_is_never_written_anyway() -> None:
    tokenizer = byte_level_tokenizer()
    (longest, *_) = sorted(ids_of(tokenizer, "water"), key=max)
    assert ids_of(tokenizer, "water", vocab_size=max(longest)) == set()


def test_without_bad_words_nothing_changes() -> None:
    params = SamplingParams(bad_word_ids=((1,),))
    assert with_bad_word_ids(params, byte_level_tokenizer(), 500) is params
