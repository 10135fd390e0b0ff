from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noria.config.errors import RequestError
from noria.sampling.params import SamplingParams
from noria.sampling.sampler import RequestSampler

VOCAB = 12
BEGIN, END = (7,), (8, 9)


def params(budget: int, begin: tuple[int, ...] = BEGIN, **others: object) -> SamplingParams:
    return SamplingParams(
        thinking_token_budget=budget,
        reasoning_begin_ids=begin,
        reasoning_end_ids=END,
        temperature=0,
        **others,
    )


def written(asked: SamplingParams, wanted: list[int], resumes_at: int | None = None) -> list[int]:
    """The output of a model that wants these tokens; from `resumes_at` on a new sampler is told what came before."""
    prompt = [1, 2]
    sampler = RequestSampler(asked, 0, prompt, len(prompt), (0,))
    output: list[int] = []
    for token_id in wanted:
        if len(output) == resumes_at:
            sampler = RequestSampler(asked, 0, prompt + output, len(prompt), (0,))
        logits = np.zeros(VOCAB, dtype=np.float32)
        logits[token_id] = 5
        output.append(sampler.sample(logits))
        sampler.append(output[-1])
    return output


def test_after_so_many_tokens_of_reasoning_the_end_marker_is_all_that_may_come() -> None:
    assert written(params(3), [4, 7, 1, 2, 3, 4, 5, 6, 6]) == [4, 7, 1, 2, 3, 8, 9, 6, 6]


def test_a_prompt_that_begins_the_reasoning_counts_from_the_outputs_start() -> None:
    assert written(params(2, ()), [1, 2, 3, 4, 5]) == [1, 2, 8, 9, 5]
    assert written(params(0, ()), [1, 2, 3]) == [8, 9, 3]


def test_reasoning_that_ends_by_itself_is_left_alone_and_so_is_what_follows() -> None:
    wanted = [7, 1, 8, 9, 1, 2, 3, 4, 7, 1, 2, 3, 4]
    assert written(params(3), wanted) == wanted
    assert written(params(2), [1, 2, 3, 4, 5]) == [1, 2, 3, 4, 5]


def test_no_mask_and_no_processor_keeps_the_end_marker_out() -> None:
    asked = params(1, (), allowed_token_ids=(1, 2), bad_word_ids=((8,),), min_tokens=9)
    assert written(asked, [1, 1, 1, 1]) == [1, 8, 9, 1]


@given(
    st.lists(st.integers(1, VOCAB - 1), min_size=1, max_size=20),
    st.integers(0, 6),
    st.integers(0, 20),
    st.booleans(),
)
def test_a_resumed_request_goes_on_as_if_it_had_never_stopped(
    wanted: list[int], budget: int, resumes_at: int, has_begun: bool
) -> None:
    asked = params(budget, () if has_begun else BEGIN)
    assert written(asked, wanted, resumes_at) == written(asked, wanted)


def test_a_budget_wants_the_marker_that_it_forces() -> None:
    with pytest.raises(RequestError, match="reasoning_end_ids"):
        SamplingParams(thinking_token_budget=3)
    with pytest.raises(RequestError, match="thinking_token_budget must be at least 0"):
        SamplingParams(thinking_token_budget=-1, reasoning_end_ids=END)


def test_the_end_marker_waits_for_what_a_mask_does_not_let_it_follow() -> None:
    """As in the middle of a character, whose next part is all that a grammar allows."""
    sampler = RequestSampler(params(1, ()), 0, [1, 2], 2, (0,))
    output: list[int] = []
    for allowed in ({1, 3}, {4}, {5}, set(range(VOCAB)), {9, 4}, {6}):
        bits = np.array([sum(1 << token_id for token_id in allowed)], dtype=np.uint32)
        output.append(sampler.sample(np.zeros(VOCAB, dtype=np.float32), bits))
        sampler.append(output[-1])
    assert output == [1, 4, 5, *END, 6]
