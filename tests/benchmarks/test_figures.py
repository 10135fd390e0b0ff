from __future__ import annotations

import pytest
from benchmarks.peers.figures import itl_ms, num_identical, output_rate, percentile, ttft_ms
from benchmarks.peers.traffic import Reply


def reply(sent_s: float, token_s: tuple[float, ...], text: str = "") -> Reply:
    return Reply(0, 0, sent_s, token_s, num_prompt=1, num_output=len(token_s), text=text)


@pytest.mark.parametrize(
    ("share", "expected"), [(0.0, 1), (0.05, 1), (0.5, 10), (0.51, 11), (0.95, 19), (0.951, 20), (1.0, 20)]
)
def test_a_percentile_is_the_nearest_rank(share: float, expected: int) -> None:
    assert percentile([*range(20, 0, -1)], share) == expected


def test_of_one_value_every_percentile_is_that_value() -> None:
    assert [percentile([7.0], share) for share in (0, 0.5, 0.95, 1)] == [7.0] * 4


def test_the_output_rate_counts_from_the_first_request_to_the_last_token() -> None:
    replies = [reply(1.0, (2.0, 3.0)), reply(0.5, (1.5, 4.5)), reply(2.0, (2.5,))]
    assert output_rate(replies) == 5 / 4.0


def test_first_tokens_and_gaps_are_milliseconds_of_each_request() -> None:
    replies = [reply(1.0, (1.5, 1.75, 2.25)), reply(0.0, (0.25,))]
    assert ttft_ms(replies) == [500, 250]
    assert itl_ms(replies) == [250, 500]
    assert itl_ms(replies[1:]) == [0]


def test_identical_answers_are_counted_pair_by_pair() -> None:
    first = [reply(0, (1,), text) for text in ("a", "b", "c")]
    second = [reply(5, (9,), text) for text in ("a", "x", "c")]
    assert num_identical(first, second) == 2
