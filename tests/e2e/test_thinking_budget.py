"""A budget for reasoning on the embedded model: to the token, in any batch, preempted or not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from noria import LLM, SamplingParams
from support_embedded import embedded_model

PROMPTS = [f"Think about the number {number}:" for number in range(8)]


@pytest.fixture(scope="module")
def llm() -> LLM:
    """With so few blocks that eight sequences of this length do not fit at once."""
    with LLM(
        embedded_model(), show_progress=False, max_model_len=128, num_gpu_blocks_override=24, max_num_seqs=8
    ) as made:
        yield made


def asked(llm: LLM, budget: int) -> SamplingParams:
    end = llm.tokenizer.encode("</think>", add_special_tokens=False)
    return SamplingParams(
        temperature=0, max_tokens=64, ignore_eos=True, thinking_token_budget=budget, reasoning_end_ids=end
    )


def test_the_end_marker_comes_after_so_many_tokens_alone_and_in_any_batch(llm: LLM) -> None:
    params = [asked(llm, budget) for budget in (0, 1, 5, 16, 17, 31, 40, 55)]
    end = list(params[0].reasoning_end_ids)
    together = llm.generate(PROMPTS, params, show_progress=False)
    assert sum(record.num_preemptions for record in llm.client.recorder.requests()) > 0
    for prompt, one, result in zip(PROMPTS, params, together, strict=True):
        [alone] = llm.generate(prompt, one, show_progress=False)
        ids = result.outputs[0].token_ids
        assert ids == alone.outputs[0].token_ids
        budget = one.thinking_token_budget or 0
        assert ids[budget : budget + len(end)] == end
        free = replace(one, thinking_token_budget=None)
        [unbounded] = llm.generate(prompt, free, show_progress=False)
        assert ids[:budget] == unbounded.outputs[0].token_ids[:budget]
