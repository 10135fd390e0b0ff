from __future__ import annotations

import math
import statistics

import pytest
from benchmarks.peers import workload
from benchmarks.peers.traffic import Group, Request
from benchmarks.peers.workload import NORMAL, QUICK


def requests_of(group: Group) -> list[tuple[int, int]]:
    """Words of the prompt and tokens wanted, of each request."""
    return [(len(request.prompt.split()), request.max_tokens) for request in group.requests]


def test_the_mixed_workload_is_the_same_for_the_same_seed_and_another_for_another() -> None:
    assert workload.mixed(96, 32, seed=1) == workload.mixed(96, 32, seed=1)
    assert workload.mixed(96, 32, seed=1) != workload.mixed(96, 32, seed=2)


def test_a_smaller_mixed_workload_is_the_beginning_of_a_larger_one() -> None:
    [few], [many] = workload.mixed(12, 1, seed=1), workload.mixed(96, 32, seed=1)
    assert few.requests == many.requests[:12]
    assert (few.concurrency, many.concurrency) == (1, 32)


def test_mixed_lengths_are_lognormal_around_their_medians_and_clipped() -> None:
    [group] = workload.mixed(4000, 8, seed=3)
    words, tokens = zip(*requests_of(group), strict=True)
    assert (min(words), max(words)) == (8, 1000)
    assert (min(tokens), max(tokens)) == (4, 256)
    assert statistics.median(words) == pytest.approx(96, rel=0.06)
    assert statistics.median(tokens) == pytest.approx(64, rel=0.06)
    # One standard deviation of the logarithm is 0.8: about 84 of 100 lie below median * e^0.8.
    below = sum(count <= 96 * math.exp(0.8) for count in words)
    assert below / len(words) == pytest.approx(0.841, abs=0.02)


def test_prompts_of_different_points_share_no_beginning() -> None:
    plays = [
        workload.mixed(48, 8, seed=1),
        workload.prefill(5, seed=1),
        workload.long_among_short(seed=1),
        workload.same_answer(32, seed=1)[0],
    ]
    starts = [
        " ".join(request.prompt.split()[:8]) for play in plays for group in play for request in group.requests
    ]
    assert len(set(starts)) == len(starts)


def test_prefill_asks_one_more_prompt_than_is_counted_one_at_a_time() -> None:
    [group] = workload.prefill(5, seed=1)
    assert requests_of(group) == [(511, 1)] * 6
    assert group.concurrency == 1


def test_long_prompts_come_one_after_another_while_short_ones_stream() -> None:
    short, long = workload.long_among_short(seed=1)
    assert (requests_of(short), short.concurrency, short.start_after_s) == ([(20, 200)] * 4, 4, 0)
    assert (requests_of(long), long.concurrency, long.start_after_s) == ([(2500, 8)] * 3, 1, 1)


def test_same_answer_asks_the_same_alone_and_all_at_once() -> None:
    [alone], [together] = workload.same_answer(32, seed=1)
    assert alone.requests == together.requests
    assert (alone.concurrency, together.concurrency, len(together.requests)) == (1, 24, 24)
    assert {request.max_tokens for request in alone.requests} == {32}


def test_the_warm_up_is_short() -> None:
    assert workload.warm_up() == [Group((Request("Once upon a time there was", 8),), 1)]


@pytest.mark.parametrize("sizes", [NORMAL, QUICK])
def test_each_load_has_requests_enough_to_be_reached(sizes: workload.Sizes) -> None:
    assert list(sizes.num_mixed) == [1, 8, 32]
    assert all(count >= concurrency for concurrency, count in sizes.num_mixed.items())
