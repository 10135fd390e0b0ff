"""A08: scoring with echo, logprobs and max_tokens 0 crashed, or told of generated tokens only.

The kind: log-probabilities of a prompt are complete and right on every path: cold, cached, in chunks, in a batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from support_http import Api
from support_models import write_checkpoint
from support_serving import serving

CONTEXT = "A request that is finished leaves the batch, and a waiting one takes its place. The water"
ENDINGS = (" wheel turns, and its buckets fill.", " wheel is 10 buckets high 🙂")
CHUNK = 16  # tokens of a step: fewer than any of the prompts has


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Api, Any]]:
    """A server whose steps are shorter than the prompts, and the same model in transformers."""
    directory: Path = tmp_path_factory.mktemp("scored")
    reference = write_checkpoint(directory, "llama", max_position_embeddings=512)
    settings = {"max_model_len": 512, "num_gpu_blocks_override": 128, "max_num_batched_tokens": CHUNK}
    # float32 throughout, as the reference computes.
    with serving(model=directory, kv_cache_dtype="float32", dtype="float32", **settings) as running:
        yield Api(running), reference


def scores(answer: dict[str, Any]) -> list[list[float | None]]:
    return [choice["logprobs"]["token_logprobs"] for choice in answer["choices"]]


def reference_scores(model: Any, ids: list[int]) -> list[float]:
    """Log-probability of each token but the first."""
    with torch.no_grad():
        logprobs = torch.log_softmax(model(torch.tensor([ids])).logits[0].double(), -1)
    return [float(logprobs[i, token_id]) for i, token_id in enumerate(ids[1:])]


@pytest.mark.parametrize("max_tokens", [0, 1])
def test_scores_of_two_endings_are_those_of_a_forward_pass_cold_and_cached(
    scored: tuple[Api, Any], max_tokens: int
) -> None:
    api, model = scored
    prompts = [CONTEXT + ending for ending in ENDINGS]
    ids = [api.tokens(prompt) for prompt in prompts]
    assert min(map(len, ids)) > 2 * CHUNK
    runs = [
        api.ask("text", prompts, echo=True, logprobs=1, max_tokens=max_tokens, cache_salt=f"run {max_tokens}")
        for _ in range(2)
    ]
    num_context = len(api.tokens(CONTEXT))
    for answer in runs:
        for prompt, tokens, choice in zip(prompts, ids, answer["choices"], strict=True):
            told = choice["logprobs"]
            assert choice["text"].startswith(prompt)
            assert (choice["finish_reason"], len(told["token_logprobs"])) == (
                "length",
                len(tokens) + max_tokens,
            )
            assert told["token_logprobs"][0] is None
            assert told["text_offset"][:2] == [0, len(api.text(tokens[:1]))]
            expected = reference_scores(model, tokens)
            assert told["token_logprobs"][1 : len(tokens)] == pytest.approx(expected, abs=1e-3)
            ending = sum(told["token_logprobs"][num_context : len(tokens)])
            assert ending == pytest.approx(sum(expected[num_context - 1 :]), abs=1e-3)
        assert answer["usage"]["completion_tokens"] == 2 * max_tokens
    assert scores(runs[0]) == scores(runs[1])  # the second came from the prefix cache


def test_the_likeliest_token_is_known_as_such(scored: tuple[Api, Any]) -> None:
    api, model = scored
    ids = api.tokens(CONTEXT)
    told = api.ask("text", ids, echo=True, logprobs=1, max_tokens=0)["choices"][0]["logprobs"]
    with torch.no_grad():
        best = model(torch.tensor([ids])).logits[0].argmax(-1).tolist()
    for i, token_id in enumerate(ids[1:]):
        is_best = told["token_logprobs"][i + 1] == max(told["top_logprobs"][i + 1].values())
        assert is_best == (best[i] == token_id)
