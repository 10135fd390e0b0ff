from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from noria.config.errors import ModelError
from noria.config.tokenizer import GgufVocabulary, TokenizerSpec
from noria.tokenize.tokenizer import build_tokenizer
from support_texts import TEXTS
from support_vocabularies import (
    USER_DEFINED_TOKEN,
    gguf_of_sentencepiece,
    sentencepiece_reference,
    sentencepiece_tokenizer,
)

CONTROL_TEXTS = ("<s>", "</s>", "<unk>", USER_DEFINED_TOKEN)


def build(vocabulary: GgufVocabulary, **spec):
    return build_tokenizer(TokenizerSpec(vocabulary=vocabulary, **spec))


def has_no_whole_token(text: str) -> bool:
    return not any(token in text for token in CONTROL_TEXTS)


@given(TEXTS)
def test_ids_are_those_of_sentencepiece(text):
    # Whole tokens are apart: sentencepiece knows no control tokens in text.
    assume(has_no_whole_token(text))
    assert sentencepiece_tokenizer().encode(text, False) == sentencepiece_reference().encode(text)


@given(st.text("ab \n", max_size=16))
def test_runs_of_the_same_few_characters_are_merged_in_sentencepieces_order(text):
    assert sentencepiece_tokenizer().encode(text, False) == sentencepiece_reference().encode(text)


@given(TEXTS)
def test_a_text_without_special_tokens_survives_the_round_trip(text):
    assume(has_no_whole_token(text))
    tokenizer = sentencepiece_tokenizer()
    # A space and its visible stand-in are one thing to sentencepiece.
    assert tokenizer.decode(tokenizer.encode(text)) == text.replace("▁", " ")


@given(st.lists(st.integers(3, 519), max_size=20))
def test_ordinary_ids_decode_as_sentencepiece_decodes_them(ids):
    # A space as a byte at the start, which no text is encoded to, is taken off like any leading space.
    assume(ids[:1] != [sentencepiece_reference().piece_to_id("<0x20>")])
    expected = sentencepiece_reference().decode(ids)
    assume("\ufffd" not in expected)  # of broken characters sentencepiece shows every byte
    assert sentencepiece_tokenizer().decode(ids) == expected


def test_characters_outside_the_vocabulary_become_their_bytes():
    tokenizer = sentencepiece_tokenizer()
    ids = tokenizer.encode("ξ", add_special_tokens=False)
    assert [tokenizer.token_bytes(i) for i in ids] == [b" ", b"\xce", b"\xbe"]
    assert tokenizer.token_text(ids[1]) == "\ufffd"


def test_a_byte_token_typed_out_is_text():
    tokenizer = sentencepiece_tokenizer()
    newline = sentencepiece_reference().piece_to_id("<0x0A>")
    assert newline not in tokenizer.encode("<0x0A>")
    assert newline in tokenizer.encode("\n")


def test_special_tokens_in_a_text_are_recognised_and_what_follows_begins_with_a_space():
    tokenizer = sentencepiece_tokenizer()
    the = tokenizer.encode("the", add_special_tokens=False)
    assert tokenizer.encode("<s>the</s>", add_special_tokens=False) == [1, *the, 2]
    assert tokenizer.encode("<think>the", False) == [sentencepiece_reference().piece_to_id("<think>"), *the]


def test_a_start_token_precedes_plain_prompts_unless_the_file_says_otherwise():
    vocabulary = gguf_of_sentencepiece(sentencepiece_reference())
    ids = sentencepiece_tokenizer().encode("the wheel", add_special_tokens=False)
    assert sentencepiece_tokenizer().encode("the wheel") == [1, *ids]
    framed = build(vocabulary, bos_token_id=1, eos_token_ids=(2,), add_bos=False, add_eos=True)
    assert framed.encode("the wheel") == [*ids, 2]


def test_without_a_space_prefix_the_text_is_taken_as_it_is():
    vocabulary = replace(gguf_of_sentencepiece(sentencepiece_reference()), add_space_prefix=False)
    tokenizer = build(vocabulary)
    ids = tokenizer.encode("wheel")
    assert tokenizer.token_bytes(ids[0])[:1] == b"w"
    assert tokenizer.decode(tokenizer.encode(" wheel")) == " wheel"


def test_without_byte_tokens_unknown_characters_become_one_unknown_token():
    tokens = ("<unk>", "▁", "a", "▁a")
    vocabulary = GgufVocabulary("llama", tokens, (0.0, -3.0, -2.0, -1.0), (2, 1, 1, 1), unknown_token_id=0)
    tokenizer = build(vocabulary)
    assert tokenizer.encode("a水車") == [3, 0]
    assert 0 in tokenizer.special_ids


def test_user_defined_spaces_are_matched_as_the_user_types_them():
    tokens = ("<unk>", "▁", "a", "▁▁▁")
    vocabulary = GgufVocabulary("llama", tokens, (0.0, -1.0, -2.0, 0.0), (2, 1, 1, 4), add_space_prefix=False)
    tokenizer = build(vocabulary)
    assert tokenizer.encode("a   a a") == [2, 3, 2, 1, 2]
    assert tokenizer.decode([2, 3, 2]) == "a   a"


def test_text_is_never_merged_into_a_byte_token():
    pieces = ("<0", "<0x", "<0x6", "1>", "<", "0", "x", "6", "1", ">")
    vocabulary = GgufVocabulary(
        "llama",
        ("<0x61>", *pieces),
        (0.0, *(-1.0 - i for i in range(len(pieces)))),
        (6, *(1 for _ in pieces)),
        add_space_prefix=False,
    )
    assert build(vocabulary).encode("<0x61>") == [3, 4]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokens": ("<unk>", "<0xZZ>"), "token_types": (2, 6)}, "token 1 has the type of a byte.*'<0xZZ>'"),
        ({"unknown_token_id": 7}, "unknown_token_id is 7; the vocabulary has 2 tokens"),
        ({"scores": (1.0,)}, "scores has 1 entries for 2 tokens"),
    ],
)
def test_an_inconsistent_vocabulary_is_refused_with_the_fault_named(change, message):
    good = GgufVocabulary("llama", ("<unk>", "a"), (0.0, 0.0), (2, 1), unknown_token_id=0)
    with pytest.raises(ModelError, match=message):
        build(replace(good, **change))
