"""E01, E02: greedy answers changed with their batch, or once their prefix came out of the cache.

The kind: a promise of sameness is tested over every freedom of the scheduler, and no optimisation alters results
unnoticed. Noria has no mode for it: this is how it always computes, so the rate of divergence is 0 and asserted.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from noria import LLM, SamplingParams
from noria.core.plan import TokenLogprobs
from support_embedded import embedded_model
from support_models import cached_checkpoint

LENGTH = 10
Answer = tuple[list[int], list[TokenLogprobs]]  # token ids, and what was said of each and its rivals

OPENINGS = (
    "The capital of France is",
    "Water boils when",
    "def fibonacci(n):",
    "Once upon a time, in a village by the sea,",
    "1, 1, 2, 3, 5, 8,",
    "Dear Sir or Madam,",
    "The three laws of motion are",
    "Ein Wasserrad dreht sich, weil",
    "To bake bread, you need",
    "import numpy as np\n",
)
PROMPTS = [f"{opening}{ending}" for opening in OPENINGS for ending in ("", " first of all")]


def params(length: int = LENGTH) -> SamplingParams:
    return SamplingParams(temperature=0, max_tokens=length, ignore_eos=True, logprobs=3)


def engine(model: Path | str, **settings: Any) -> LLM:
    return LLM(model, show_progress=False, max_model_len=1024, num_threads=1, **settings)


def answers(llm: LLM, prompts: Sequence[Any], length: int = LENGTH) -> list[Answer]:
    results = llm.generate(list(prompts), params(length), show_progress=False)
    return [(result.outputs[0].token_ids, result.outputs[0].logprobs) for result in results]


def num_preemptions(llm: LLM) -> int:
    return sum(record.num_preemptions for record in llm.client.recorder.requests())


@pytest.fixture(scope="module")
def alone() -> list[Answer]:
    """What each prompt gives by itself, nothing cached."""
    with engine(embedded_model(), enable_prefix_caching=False) as llm:
        return [answers(llm, [prompt])[0] for prompt in PROMPTS]


def strangers() -> list[list[int]]:
    draw = random.Random(1)
    return [[draw.randrange(100, 40_000) for _ in range(draw.randrange(1, 60))] for _ in range(40)]


def test_together_again_and_shuffled_every_bit_is_that_of_the_prompt_alone(alone: list[Answer]) -> None:
    with engine(embedded_model()) as llm:
        assert answers(llm, PROMPTS) == alone
        for seed in range(2):
            order = random.Random(seed).sample(range(len(PROMPTS)), len(PROMPTS))
            assert answers(llm, [PROMPTS[i] for i in order]) == [alone[i] for i in order]


def test_among_strangers_every_bit_is_that_of_the_prompt_alone(alone: list[Answer]) -> None:
    with engine(embedded_model()) as llm:
        assert answers(llm, [*strangers(), *PROMPTS])[40:] == alone


def test_in_steps_of_16_tokens_every_bit_is_that_of_the_prompt_alone(alone: list[Answer]) -> None:
    with engine(embedded_model(), max_num_batched_tokens=16, max_num_seqs=16) as llm:
        assert answers(llm, PROMPTS) == alone


@pytest.mark.parametrize("caching", [True, False])
def test_preempted_every_bit_is_that_of_the_prompt_alone(alone: list[Answer], caching: bool) -> None:
    settings = {"num_gpu_blocks_override": 10, "block_size": 8, "enable_prefix_caching": caching}
    with LLM(embedded_model(), show_progress=False, max_model_len=80, **settings) as llm:
        assert answers(llm, PROMPTS) == alone
        assert num_preemptions(llm) > 0


def tails(vocabulary: int, lengths: Sequence[int], seed: int) -> list[list[int]]:
    draw = random.Random(seed)
    return [[draw.randrange(5, vocabulary) for _ in range(length)] for length in lengths]


KINDS = {
    "embedded, float32": (None, {"dtype": "float32"}),
    "embedded, bfloat16": (None, {"dtype": "bfloat16"}),
    "embedded, KV in bfloat16": (None, {"kv_cache_dtype": "bfloat16"}),
    "embedded, KV in int8": (None, {"kv_cache_dtype": "int8"}),
    "stored in float32, float32": ("llama", {"dtype": "float32", "kv_cache_dtype": "float32"}),
    "stored in float32, bfloat16": ("llama", {"dtype": "bfloat16", "kv_cache_dtype": "bfloat16"}),
    "torch, bfloat16": ("qwen3", {"dtype": "bfloat16", "backend": "torch"}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_of_prompts_cold_warm_and_warm_through_a_longer_one_none_diverges(kind: str) -> None:
    architecture, settings = KINDS[kind]
    small = architecture is not None
    model = cached_checkpoint(architecture, max_position_embeddings=1024) if small else embedded_model()
    lengths = range(100, 600, 10) if small else range(100, 200, 17)
    prompts = tails(300 if small else 40_000, lengths, seed=2)
    longer = [prompt + tail for prompt, tail in zip(prompts, tails(300, [23] * len(prompts), 3), strict=True)]
    with engine(model, enable_prefix_caching=False, **settings) as llm:
        cold = answers(llm, prompts, 6)
    with engine(model, num_gpu_blocks_override=2048, **settings) as llm:
        assert answers(llm, prompts, 6) == cold
        assert answers(llm, prompts, 6) == cold
        assert all(result.num_cached_tokens for result in llm.generate(prompts, params(1), False))
    with engine(model, num_gpu_blocks_override=2048, **settings) as llm:
        answers(llm, longer, 6)
        assert answers(llm, prompts, 6) == cold
