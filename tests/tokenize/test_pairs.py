"""Two texts read together."""

from __future__ import annotations

from pathlib import Path

import pytest
import tokenizers

from noria.config.errors import RequestError
from noria.config.tokenizer import TokenizerSpec
from noria.tokenize.tokenizer import Tokenizer, build_tokenizer
from support_encoders import CLS, SEP, write_word_tokenizer


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory: Path = tmp_path_factory.mktemp("words")
    write_word_tokenizer(directory)
    return (directory / "tokenizer.json").read_text()


@pytest.fixture(scope="module")
def tokenizer(source: str) -> Tokenizer:
    return build_tokenizer(TokenizerSpec(tokenizer_json=source))


def test_a_pair_is_framed_as_the_checkpoint_says_and_tells_where_the_second_text_begins(
    tokenizer: Tokenizer,
) -> None:
    first, second = (
        tokenizer.encode(text, add_special_tokens=False) for text in ("the water", "a wheel turns")
    )
    ids, num_first = tokenizer.encode_pair("the water", "a wheel turns")
    assert list(ids) == [CLS, *first, SEP, *second, SEP]
    assert num_first == 1 + len(first) + 1


def test_texts_that_types_do_not_tell_apart_have_no_second(source: str) -> None:
    made = tokenizers.Tokenizer.from_str(source)
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] [SEP] $B [SEP]",
        special_tokens=[("[CLS]", CLS), ("[SEP]", SEP)],
    )
    ids, num_first = build_tokenizer(TokenizerSpec(tokenizer_json=made.to_str())).encode_pair("the", "wheel")
    assert (ids.count(SEP), num_first) == (3, 0)


def test_a_pair_that_is_not_unicode_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(RequestError, match=r"lone surrogate U\+D800"):
        tokenizer.encode_pair("the", "\ud800")
