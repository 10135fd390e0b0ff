from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, pre_tokenizers
from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS

from noria.config.errors import ModelError
from noria.config.tokenizer import GgufVocabulary, TokenizerSpec
from noria.tokenize.byte_level import bytes_of_spelling
from noria.tokenize.pre_tokenizers import find_pre_tokenizer
from noria.tokenize.tokenizer import build_tokenizer
from support_texts import TEXTS
from support_vocabularies import (
    SPECIAL_TOKENS,
    USER_DEFINED_TOKEN,
    byte_level_reference,
    byte_level_tokenizer,
)


def build(vocabulary: GgufVocabulary, **spec):
    return build_tokenizer(TokenizerSpec(vocabulary=vocabulary, **spec))


def split(pre: str, text: str) -> list[str]:
    pieces = find_pre_tokenizer(pre).build().pre_tokenize_str(text)
    return [text[start:end] for _, (start, end) in pieces]


@given(TEXTS)
def test_ids_and_text_are_those_of_the_tokenizer_that_the_file_was_made_from(text):
    reference, tokenizer = byte_level_reference(), byte_level_tokenizer()
    ids = tokenizer.encode(text)
    assert ids == reference.encode(text).ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == text
    assert tokenizer.decode(ids) == reference.decode(ids)


@given(st.lists(st.integers(0, 480), max_size=20))
def test_any_ids_decode_as_the_original_decodes_them(ids):
    assert byte_level_tokenizer().decode(ids) == byte_level_reference().decode(ids)


@given(TEXTS)
def test_the_bytes_of_the_tokens_join_to_the_text(text):
    tokenizer = byte_level_tokenizer()
    assert b"".join(map(tokenizer.token_bytes, tokenizer.encode(text))) == text.encode()


def test_control_tokens_are_special_and_user_defined_ones_are_recognised_but_shown():
    tokenizer = byte_level_tokenizer()
    end, start = (byte_level_reference().token_to_id(token) for token in SPECIAL_TOKENS)
    think = byte_level_reference().token_to_id(USER_DEFINED_TOKEN)
    ids = tokenizer.encode("<|start|><think><|end|>")
    assert ids == [start, think, end]
    assert [i in tokenizer.special_ids for i in ids] == [True, False, True]
    assert tokenizer.decode(ids) == "<think>"


def test_a_whole_token_means_the_text_it_shows_even_if_that_spells_bytes():
    tokens = ("a", "b", "ö", "<｜end▁of▁sentence｜>", "two words")
    tokenizer = build(GgufVocabulary("gpt2", tokens, token_types=(1, 1, 4, 3, 1), pre="gpt-2"))
    ids = tokenizer.encode("aö<｜end▁of▁sentence｜>b")
    assert ids == [0, 2, 3, 1]
    assert tokenizer.decode(ids, skip_special_tokens=False) == "aö<｜end▁of▁sentence｜>b"
    assert tokenizer.token_bytes(4) == b"two words"


def test_each_character_of_the_alphabet_is_one_byte():
    tokenizer = byte_level_tokenizer()
    single = {tokenizer.token_bytes(i) for i in range(tokenizer.vocab_size)}
    assert {bytes((byte,)) for byte in range(256)} <= single
    assert bytes_of_spelling("Ġa") == b" a"


def test_a_whole_word_in_the_vocabulary_is_one_token_where_merges_are_ignored():
    tokens = ("<s>", "a", "b", "c", "abc")
    vocabulary = GgufVocabulary("gpt2", tokens, token_types=(3, 1, 1, 1, 1), merges=(), pre="llama-bpe")
    assert build(vocabulary).encode("abc") == [4]
    assert build(replace(vocabulary, pre="gpt-2")).encode("abc") == [1, 2, 3]


def test_text_is_composed_first_where_the_models_own_tokenizer_does_so():
    tokens = ("é", "Ã", "©", "e", "Ì", "ģ", "Ã©")
    vocabulary = GgufVocabulary("gpt2", tokens, merges=("Ã ©",), pre="qwen2")
    assert build(vocabulary).encode("e\u0301") == [6]
    assert build(replace(vocabulary, pre="gpt-2")).encode("e\u0301") == [3, 4, 5]


@pytest.mark.parametrize(
    ("pre", "text", "pieces"),
    [
        ("gpt-2", "I'll pay  1234 €!", ["I", "'ll", " pay", " ", " 1234", " €!"]),
        ("", "it's 12345 + x", ["it", "'", "s", " ", "123", "45", " ", "+", " x"]),
        ("smollm", "x 123", ["x", " ", "1", "2", "3"]),
        ("starcoder", "a12b", ["a", "1", "2", "b"]),
        ("refact", "a 1b", ["a", " ", "1", "b"]),
        ("mpt", "a  b\n c", ["a", " ", " b", "\n", " c"]),
        ("llama-bpe", "I'LL pay 12345\n\n x", ["I", "'LL", " pay", " ", "123", "45", "\n\n", " x"]),
        ("llama3", "(foo)\r\n", ["(foo", ")\r\n"]),
        ("qwen2", "pay 123  x", ["pay", " ", "1", "2", "3", " ", " x"]),
        ("qwen35", "\u0915\u094d\u0937 1", ["\u0915\u094d\u0937", " ", "1"]),
        ("tekken", "HelloWorld don't/\n", ["Hello", "World", " don", "'t", "/\n"]),
        ("gpt-4o", "HelloWorld don't 1234", ["Hello", "World", " don't", " ", "123", "4"]),
        ("deepseek-llm", "Ab 12,水車 x  ", ["Ab", " ", "12", ",", "水車", " x", "  "]),
        ("deepseek-coder", "Ab 12,水\nx", ["Ab", " ", "1", "2", ",", "水", "\n", "x"]),
        ("deepseek-v3", "1234水車 x.y", ["123", "4", "水車", " x", ".y"]),
        ("deepseek-r1-qwen", "a 12", ["a", " ", "1", "2"]),
        ("command-r", "a 12", ["a", " ", "1", "2"]),
        ("falcon", "a`b 1234", ["a", "`", "b", " ", "123", "4"]),
        ("seed-coder", "a 12.\n", ["a", " ", "1", "2", ".", "\n"]),
        ("bloom", "one, two", ["one", ",", " two"]),
        ("viking", "a1 b", ["a", "1", " b"]),
    ],
)
def test_text_is_split_as_the_named_pre_tokenizer_splits_it(pre, text, pieces):
    assert split(pre, text) == pieces


@pytest.mark.parametrize(
    "pre", sorted({"llama-bpe", "tekken", "qwen2", "deepseek-r1-qwen", "qwen35", "gpt-4o"})
)
@given(text=TEXTS)
def test_splits_agree_with_those_that_transformers_uses_for_the_same_name(pre, text):
    expected = pre_tokenizers.Split(Regex(GGUF_PRE_TOKENIZER_SPLITS[pre]), behavior="isolated")
    assert split(pre, text) == [piece for piece, _ in expected.pre_tokenize_str(text)]


def test_llama3_puts_a_start_token_before_a_prompt_unless_the_file_says_otherwise():
    vocabulary = GgufVocabulary("gpt2", ("<s>", "a"), token_types=(3, 1), pre="llama-bpe")
    assert build(vocabulary, bos_token_id=0).encode("a") == [0, 1]
    assert build(vocabulary, bos_token_id=0, add_bos=False).encode("a") == [1]
    assert build(vocabulary).encode("a") == [1]


GOOD = GgufVocabulary("gpt2", ("a", "b", "ab"), merges=("a b",), pre="gpt-2")


@pytest.mark.parametrize(
    ("vocabulary", "message"),
    [
        (replace(GOOD, pre="gpt-9"), "tokenizer.ggml.pre is 'gpt-9'.*known: .*llama-bpe.*qwen2.*smollm"),
        (replace(GOOD, merges=("a c",)), "tokenizer.ggml.merges do not fit tokenizer.ggml.tokens.*`c`"),
        (replace(GOOD, merges=("ab",)), "tokenizer.ggml.merges holds 'ab'"),
        (replace(GOOD, token_types=(1,)), "tokenizer.ggml.token_type has 1 entries for 3 tokens"),
        (replace(GOOD, scores=(0.0,) * 4), "tokenizer.ggml.scores has 4 entries for 3 tokens"),
        (replace(GOOD, tokens=()), "tokenizer.ggml.tokens is empty"),
        (replace(GOOD, kind="t5"), "tokenizer.ggml.model is 't5'.*known: gpt2, llama"),
    ],
)
def test_an_inconsistent_vocabulary_is_refused_with_the_fault_named(vocabulary, message):
    with pytest.raises(ModelError, match=message):
        build(vocabulary)
