"""Two texts in one prompt, and texts that are cut without losing what is put around them."""

from __future__ import annotations

import pytest
import tokenizers
from tokenizers import models, pre_tokenizers, processors

from noria.config.tokenizer import TokenizerSpec
from noria.tokenize.tokenizer import Tokenizer, build_tokenizer

WORDS = {"[CLS]": 0, "[SEP]": 1, "[UNK]": 2, "a": 3, "b": 4, "c": 5, "d": 6, "e": 7}


def tokenizer_of(template: bool = True) -> Tokenizer:
    made = tokenizers.Tokenizer(models.WordLevel(WORDS, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    if template:
        made.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]",
            pair="[CLS] $A [SEP] $B:1 [SEP]:1",
            special_tokens=[("[CLS]", 0), ("[SEP]", 1)],
        )
    return build_tokenizer(TokenizerSpec(tokenizer_json=made.to_str()))


def test_a_pair_is_joined_as_the_checkpoint_says_and_tells_where_the_second_text_begins() -> None:
    assert tokenizer_of().encode_pair("a b", "c d e") == ((0, 3, 4, 1, 5, 6, 7, 1), 4)


def test_without_a_template_the_texts_follow_each_other_and_are_not_told_apart() -> None:
    assert tokenizer_of(template=False).encode_pair("a b", "c") == ((3, 4, 5), 0)


@pytest.mark.parametrize(
    ("most", "ids"),
    [
        (8, (0, 3, 4, 1, 5, 6, 7, 1)),
        (7, (0, 3, 4, 1, 5, 6, 1)),
        (5, (0, 3, 4, 1, 1)),
        (2, (0, 3, 4, 1, 1)),
    ],
)
def test_a_pair_loses_the_end_of_its_second_text_and_nothing_else(most: int, ids: tuple[int, ...]) -> None:
    assert tokenizer_of().encode_pair("a b", "c d e", most) == (ids, 4)


@pytest.mark.parametrize(
    ("most", "ids"), [(5, [0, 3, 4, 5, 1]), (4, [0, 3, 4, 1]), (3, [0, 3, 1]), (2, [0, 1]), (1, [0, 1])]
)
def test_a_text_that_is_cut_keeps_what_is_put_around_it(most: int, ids: list[int]) -> None:
    assert tokenizer_of().encode_within("a b c", most) == ids


def test_a_text_without_anything_around_it_is_cut_at_its_end() -> None:
    assert tokenizer_of(template=False).encode_within("a b c", 2) == [3, 4]
