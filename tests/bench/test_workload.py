"""A workload is what was asked for, and the same for the same seed."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from noria.bench.lengths import parse_lengths
from noria.bench.pieces import Piece, Planned, sharing_ratio
from noria.bench.vocabulary import WORDS, Writer, vocabulary_of
from noria.bench.workload import Room, Workload, make_workload
from noria.config.benching import WorkloadOptions
from noria.config.errors import ConfigError


def made(count: int = 200, max_model_len: int | None = None, **settings: object) -> Workload:
    return make_workload(WorkloadOptions(**settings), count, max_model_len, None)  # type: ignore[arg-type]


def drawn(text: str, count: int = 4000) -> list[int]:
    random = np.random.default_rng(1)
    lengths = parse_lengths(text, "prompt_tokens")
    return [lengths.draw(random) for _ in range(count)]


def test_fixed_uniform_and_spread_lengths_have_their_parameters() -> None:
    assert set(drawn("256")) == {256}
    uniform = drawn("8-16")
    assert (min(uniform), max(uniform)) == (8, 16)
    assert np.mean(drawn("normal:200,40")) == pytest.approx(200, rel=0.02)
    assert np.std(drawn("normal:200,40")) == pytest.approx(40, rel=0.06)
    assert np.median(drawn("lognormal:100,0.8")) == pytest.approx(100, rel=0.06)
    clipped = drawn("normal:200,100,150,260")
    assert (min(clipped), max(clipped)) == (150, 260)


def test_a_mix_has_each_part_by_its_weight() -> None:
    values = drawn("10*0.7+1000*0.3")
    assert set(values) == {10, 1000}
    assert values.count(10) / len(values) == pytest.approx(0.7, abs=0.03)


@pytest.mark.parametrize("text", ["", "abc", "9-8", "normal:5", "lognormal:0,1", "10*", "normal:5,1,9,2"])
def test_what_is_no_length_is_refused_with_the_forms(text: str) -> None:
    with pytest.raises(ConfigError, match="lognormal:MEDIAN,SIGMA"):
        parse_lengths(text, "prompt_tokens")


def test_the_same_seed_gives_the_same_requests_and_another_others() -> None:
    assert made().requests == made().requests
    assert made().requests != made(bench_seed=1).requests


@pytest.mark.parametrize(("sharing", "expected"), [(0.0, 0.0), (0.5, 0.25), (1.0, 0.5)])
def test_prompts_share_as_much_as_is_asked(sharing: float, expected: float) -> None:
    workload = made(1000, prompt_tokens="100", prefix_tokens=100, prefix_groups=2, prefix_sharing=sharing)
    assert workload.about()["prefix_sharing_ratio"] == pytest.approx(expected, abs=0.02)


def test_turns_begin_with_everything_that_was_said() -> None:
    requests = made(30, turns="3", prefix_tokens=16).requests
    for before, after in pairwise(requests):
        if after.session == before.session:
            answer = after.pieces[len(before.pieces)]
            assert after.pieces[: len(before.pieces)] == before.pieces
            assert (answer.role, answer.num_tokens) == ("assistant", before.num_output)
    assert [request.turn for request in requests[:6]] == [0, 1, 2, 0, 1, 2]


def test_what_does_not_fit_the_model_is_cut_and_counted() -> None:
    workload = made(10, 64, prompt_tokens="100", output_tokens="20")
    assert {(request.num_prompt, request.num_output) for request in workload.requests} == {(44, 20)}
    assert workload.num_cut == 10
    assert made(10, 64, prompt_tokens="10", output_tokens="20").num_cut == 0


def test_an_answer_longer_than_the_model_leaves_room_for_a_prompt() -> None:
    fitted = Room(max_model_len=8).fit(Planned(0, (Piece("a", 5),), 100))
    assert (fitted.num_prompt, fitted.num_output) == (1, 7)


def test_guidellms_words_are_understood() -> None:
    text = (
        "prompt_tokens=50,prompt_tokens_stdev=10,prompt_tokens_max=60,output_tokens=7,turns=2,prefix_tokens=8"
    )
    workload = made(40, synthetic=text)
    firsts = [request for request in workload.requests if request.turn == 0]
    assert {request.num_output for request in workload.requests} == {7}
    assert all(request.pieces[0].num_tokens == 8 and request.pieces[1].num_tokens <= 60 for request in firsts)
    with pytest.raises(ConfigError, match="'colour=1' is none of"):
        made(1, synthetic="prompt_tokens=5,colour=1")


def test_sharing_without_a_length_is_refused() -> None:
    with pytest.raises(ConfigError, match="--prefix-tokens"):
        made(5, prefix_sharing=0.5)


def by_hand(*prompts: tuple[tuple[str, int], ...]) -> float:
    return sharing_ratio(
        Planned(index, tuple(Piece(*piece) for piece in prompt), 1) for index, prompt in enumerate(prompts)
    )


def test_the_sharing_ratio_counts_what_an_endless_prefix_cache_would_find() -> None:
    assert by_hand((("a", 10), ("b", 10)), (("a", 10), ("c", 10))) == 10 / 40
    assert by_hand((("a", 10),), (("a", 4),)) == 4 / 14
    assert by_hand((("a", 4),), (("a", 10),)) == 4 / 14
    # the same text after another beginning is no shared prefix
    assert by_hand((("a", 10), ("b", 10)), (("x", 10), ("b", 10))) == 0
    assert by_hand((("a", 4), ("b", 10)), (("a", 5), ("b", 10))) == 4 / 29


def encode_words(text: str) -> list[int]:
    """A tokenizer for which every word is one token, but for long ones."""
    return [
        number
        for word in text.split()
        for number in ([len(word) * 1000 + ord(word[0])] * (1 + len(word) // 6))
    ]


def test_prompts_of_ids_and_of_words_have_the_planned_number_of_tokens() -> None:
    writer = Writer(vocabulary_of(encode_words), seed=3)
    pieces = [Piece("a", 7), Piece("b", 5)]
    assert len(writer.ids(pieces)) == 12
    assert len(encode_words(writer.text(pieces))) == 12
    assert all(len(word) < 6 for word in writer.vocabulary.words)


def test_the_same_piece_is_the_same_text_however_long_and_another_seed_writes_another() -> None:
    writer = Writer(vocabulary_of(encode_words), seed=3)
    long, short = writer.ids([Piece("a", 50)]), writer.ids([Piece("a", 20)])
    assert long[:20].tolist() == short.tolist()
    other = Writer(writer.vocabulary, seed=4)
    assert other.ids([Piece("a", 50)]).tolist() != long.tolist()


def test_without_a_tokenizer_there_are_words_and_no_ids() -> None:
    vocabulary = vocabulary_of(None)
    assert not len(vocabulary.ids)
    assert vocabulary.words == WORDS
    assert not vocabulary.words_are_tokens
