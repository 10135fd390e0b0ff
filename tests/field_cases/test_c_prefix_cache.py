"""C01, C02: KV of other weights was taken for that of these, and a quick first token told another's prompt.

The kind: whatever changes a cached result is in its key, and shared state neither crosses a line of trust nor relies on
luck. What the key holds is tried in tests/engine/test_identity.py.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from noria import LLM, SamplingParams
from noria.core.prefix import HashChain
from support_models import cached_checkpoint, hf_config, hf_model
from support_processes import processes, until
from support_serving import Serving, serving

ONE, OTHER = "sk-one", "sk-other"


def prompt(seed: int, length: int = 64) -> list[int]:
    draw = random.Random(seed)
    return [draw.randrange(5, 300) for _ in range(length)]


def ask(url: str, ids: list[int], key: str = ONE, **fields: Any) -> tuple[list[int], int]:
    """What it says, and how many tokens of the prompt came from the cache."""
    body = {"prompt": ids, "max_tokens": 8, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
    answer = httpx.post(
        f"{url}/v1/completions",
        json={**body, **fields},
        headers={"Authorization": f"Bearer {key}"},
        timeout=60,
    )
    assert answer.status_code == 200, answer.text
    said = answer.json()
    return said["choices"][0]["token_ids"], said["usage"]["prompt_tokens_details"]["cached_tokens"]


def answers(model: Path, prompts: list[list[int]]) -> list[list[int]]:
    """Of an engine that has seen nothing before."""
    params = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
    with LLM(model, show_progress=False, enable_prefix_caching=False) as llm:
        return [result.outputs[0].token_ids for result in llm.generate(prompts, params, show_progress=False)]


def test_other_weights_under_the_same_name_find_nothing_cached_and_answer_as_a_cold_server_does(
    tmp_path: Path,
) -> None:
    """Weights are read when an engine starts, and at no other time: here in another one's place."""
    model = tmp_path / "model"
    shutil.copytree(cached_checkpoint("llama"), model)
    asked = [prompt(seed) for seed in range(3)]
    before = answers(model, asked)
    flags = ("--model", model, "--enable-prompt-tokens-details", "--num-gpu-blocks-override", 128)
    with processes(tmp_path / "log", *flags) as server:
        server.ready()
        assert [ask(server.url, ids) for ids in asked] == [(ids, 0) for ids in before]
        assert [ask(server.url, ids)[1] for ids in asked] == [63] * 3
        hf_model(hf_config("llama"), seed=1).save_pretrained(model)
        after = answers(model, asked)
        assert after != before
        engine = server.pids()["engine"]
        server.kill("engine")
        until(lambda: server.pids().get("engine", engine) != engine and server.status("/ready") == 200)
        assert [ask(server.url, ids) for ids in asked] == [(ids, 0) for ids in after]
        assert [ask(server.url, ids) for ids in asked] == [(ids, 63) for ids in after]


@pytest.fixture(scope="module")
def parted() -> Iterator[Serving]:
    settings = {
        "prefix_cache_isolation": "key",
        "enable_prompt_tokens_details": True,
        "api_key": (ONE, OTHER),
    }
    with serving(model=cached_checkpoint("llama"), num_gpu_blocks_override=512, **settings) as running:
        yield running


def test_holders_of_two_keys_share_no_prefix_and_each_shares_its_own(parted: Serving) -> None:
    for trial in range(20):
        ids = prompt(trial, 128)
        first, cached = ask(parted.url, ids, ONE)
        assert cached == 0
        assert ask(parted.url, ids, OTHER) == (first, 0)
        assert ask(parted.url, ids, OTHER) == (first, 127)
        assert ask(parted.url, ids, ONE) == (first, 127)


def test_another_s_prefix_is_computed_again_whatever_the_body_says(parted: Serving) -> None:
    """The steps say so too: not a token less is computed for one whose prompt another has sent."""
    ids = prompt(100, 128)
    ask(parted.url, ids, ONE, cache_salt="shared")
    for fields in ({"cache_salt": "shared"}, {"user": "key-1"}, {"cache_salt": "key-1"}, {}):
        num_before = computed(parted)
        assert ask(parted.url, ids, OTHER, **fields)[1] in (0, 127)  # 127: what OTHER has sent itself
        if "cache_salt" in fields:
            assert computed(parted) - num_before == 128


def computed(running: Serving) -> int:
    running.check_clean()
    return sum(step.num_prompt_tokens for step in running.engine.recorder.steps())


def test_without_isolation_everybody_shares_unless_a_salt_parts_them() -> None:
    settings = {"enable_prompt_tokens_details": True, "api_key": (ONE, OTHER)}
    with serving(model=cached_checkpoint("llama"), num_gpu_blocks_override=128, **settings) as running:
        ids = prompt(1)
        assert ask(running.url, ids, ONE)[1] == 0
        assert ask(running.url, ids, OTHER)[1] == 63
        assert ask(running.url, ids, OTHER, cache_salt="x")[1] == 0


@pytest.mark.parametrize("isolation", ["none", "key"])
def test_with_a_hash_of_four_bits_every_answer_is_still_right(
    isolation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def weak(parent: bytes, content: bytes) -> bytes:
        return bytes([sum(parent + content) % 16])

    model = cached_checkpoint("llama")
    head = prompt(0, 32)
    asked = [head + prompt(seed, 32) if seed % 2 else prompt(seed) for seed in range(24)]
    alone = answers(model, asked)
    monkeypatch.setattr("noria.engine.loop.HashChain", partial(HashChain, digest=weak))
    settings = {"prefix_cache_isolation": isolation, "enable_prompt_tokens_details": True}
    with serving(model=model, num_gpu_blocks_override=128, api_key=(ONE, OTHER), **settings) as running:
        for _ in range(2):
            heard = [ask(running.url, ids, (ONE, OTHER)[i % 3 % 2]) for i, ids in enumerate(asked)]
            assert [ids for ids, _ in heard] == alone
        assert any(num_cached for _, num_cached in heard)
