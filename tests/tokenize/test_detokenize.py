import random
from functools import lru_cache

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from noria.tokenize.detokenize import IncrementalDetokenizer
from noria.tokenize.pieces import MAX_PENDING, ContextPieces
from support_vocabularies import (
    byte_level_reference,
    byte_level_tokenizer,
    json_tokenizer,
    sentencepiece_tokenizer,
)
from support_word_models import WORD_MODELS

TOKENIZERS = {"byte level": byte_level_tokenizer, "sentencepiece": sentencepiece_tokenizer} | {
    name: lru_cache(lambda build=build: json_tokenizer(build())) for name, build in WORD_MODELS.items()
}
RANDOM_IDS = st.lists(st.integers(-2, 600), max_size=30)


every_tokenizer = pytest.mark.parametrize("name", sorted(TOKENIZERS))


def cut_at_random(ids: list[int], seed: int) -> list[list[int]]:
    pieces, source = [], random.Random(seed)
    while ids:
        size = source.randint(1, 4)
        pieces, ids = [*pieces, ids[:size]], ids[size:]
    return pieces


def join(tokenizer, pieces, skip_special_tokens=True, **options) -> str:
    detokenizer = IncrementalDetokenizer(tokenizer, skip_special_tokens, **options)
    return "".join([*map(detokenizer.feed, pieces), detokenizer.flush()])


@every_tokenizer
@given(ids=RANDOM_IDS, seed=st.integers(0, 2**32), skips=st.booleans())
def test_joined_pieces_equal_one_decode_however_the_ids_are_cut(name, ids, seed, skips):
    tokenizer = TOKENIZERS[name]()
    known = [i for i in ids if 0 <= i < tokenizer.vocab_size]
    assert join(tokenizer, cut_at_random(ids, seed), skips) == tokenizer.decode(known, skips)


@every_tokenizer
@given(ids=RANDOM_IDS, seed=st.integers(0, 2**32))
def test_text_that_continues_another_is_also_blind_to_cutting(name, ids, seed):
    tokenizer = TOKENIZERS[name]()
    assert join(tokenizer, cut_at_random(ids, seed), continues=True) == join(tokenizer, [ids], continues=True)


@given(text=st.text(st.sampled_from("a é水🙂\U0001f468\u200d🇫ไท\n"), max_size=12))
def test_no_piece_shows_a_replacement_character_that_the_text_lacks(text):
    for build in (byte_level_tokenizer, sentencepiece_tokenizer):
        tokenizer = build()
        detokenizer = IncrementalDetokenizer(tokenizer)
        pieces = [detokenizer.feed([i]) for i in tokenizer.encode(text, add_special_tokens=False)]
        assert "".join(pieces) == text
        assert detokenizer.flush() == ""
        for piece in pieces:
            piece.encode()  # whole characters only: no lone surrogates


def test_a_text_that_ends_inside_a_character_ends_in_one_replacement_character():
    tokenizer = byte_level_tokenizer()
    ids = [byte_level_reference().token_to_id(c) for c in ("a", "ð", "Ł", "ĺ")]  # a, F0 9F 98
    detokenizer = IncrementalDetokenizer(tokenizer)
    assert [detokenizer.feed([i]) for i in ids] == ["a", "", "", ""]
    assert detokenizer.flush() == "\ufffd"
    assert tokenizer.decode(ids) == "a\ufffd"


def test_bytes_that_can_become_no_character_are_given_out_at_once():
    tokenizer = byte_level_tokenizer()
    encode = byte_level_reference().token_to_id
    detokenizer = IncrementalDetokenizer(tokenizer)
    assert [detokenizer.feed([encode(c)]) for c in ("ð", "a", "ÿ")] == ["", "\ufffda", "\ufffd"]


def test_every_byte_string_decodes_like_utf8_with_replacement():
    tokenizer = byte_level_tokenizer()
    id_of_byte = {tokenizer.token_bytes(i): i for i in range(tokenizer.vocab_size)}
    source = random.Random(5)
    heads = (0x41, 0x80, 0xBF, 0xC2, 0xE0, 0xE2, 0xED, 0xF0, 0xF4, 0xFF, 0x9F)
    for _ in range(400):
        data = bytes(source.choice(heads) for _ in range(source.randint(1, 8)))
        ids = [id_of_byte[bytes((byte,))] for byte in data]
        assert join(tokenizer, [[i] for i in ids]) == data.decode(errors="replace")


def test_only_a_text_at_its_start_loses_sentencepieces_leading_space():
    tokenizer = sentencepiece_tokenizer()
    ids = tokenizer.encode("the wheel", add_special_tokens=False)
    assert join(tokenizer, [[i] for i in ids]) == "the wheel"
    assert join(tokenizer, [[i] for i in ids], continues=True) == " the wheel"


def test_a_special_token_before_the_text_does_not_count_as_its_start():
    tokenizer = sentencepiece_tokenizer()
    ids = [tokenizer.bos_token_id, *tokenizer.encode("the wheel", add_special_tokens=False)]
    assert join(tokenizer, [[i] for i in ids]) == "the wheel"
    assert join(tokenizer, [[i] for i in ids], skip_special_tokens=False) == "<s> the wheel"


def test_each_token_is_decoded_a_bounded_number_of_times():
    class CountingPieces(ContextPieces):
        num_decoded = 0

        def decode(self, token_ids):
            CountingPieces.num_decoded += len(token_ids)
            return super().decode(token_ids)

    encoder = tokenizers.Tokenizer.from_str(WORD_MODELS["replaced byte level"]().to_str())
    unfinished = encoder.token_to_id("ð")
    decoder = CountingPieces(encoder, encoder.get_vocab_size()).start()
    num_tokens = 3000
    for i in range(num_tokens):
        decoder.feed([unfinished if i % 100 else 5])
    assert CountingPieces.num_decoded < num_tokens * 4 * MAX_PENDING
