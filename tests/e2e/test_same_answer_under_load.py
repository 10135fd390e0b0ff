"""200 requests from 64 clients over HTTP, a pool that forces preemption: every answer is the solo answer.

Every other request is greedy, the others are sampled with a seed.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import httpx
import pytest

from noria import LLM, SamplingParams
from support_held import held
from support_serving import Serving, serving

NUM_REQUESTS, NUM_CLIENTS = 200, 64
MAX_LEN = 320
BLOCK_SIZE, NUM_BLOCKS = 8, 64  # not two of the longest requests

Workload = list[tuple[list[int], int]]

VARIANTS = {
    "defaults": {},
    "without chunked prefill": {"enable_chunked_prefill": False},
    "small steps": {"max_num_batched_tokens": 64},
    "without prefix caching": {"enable_prefix_caching": False},
    "static batching": {"admission_policy": "static"},
    "static, whole prompts, no caching": {
        "admission_policy": "static",
        "enable_chunked_prefill": False,
        "enable_prefix_caching": False,
    },
    "one thread": {"num_threads": 1},
}


@pytest.fixture(scope="module")
def workload() -> Workload:
    """(prompt ids, output length); half of the prompts begin with one of three shared prefixes."""
    draw = random.Random(7)
    prefixes = [[draw.randrange(5, 90) for _ in range(length)] for length in (20, 48, 100)]
    requests = []
    for i in range(NUM_REQUESTS):
        head = draw.choice(prefixes) if i % 4 < 2 else []
        tail = [draw.randrange(5, 90) for _ in range(draw.choice((1, 5, 17, 40, 120)))]
        requests.append((head + tail, draw.choice((1, 4, 16, 48, 80))))
    return requests


@pytest.fixture(scope="module")
def alone(tiny_model: Path, workload: Workload) -> list[list[int]]:
    """What each request gives when it is the only one there has ever been."""
    with LLM(tiny_model, max_model_len=MAX_LEN, enable_prefix_caching=False, show_progress=False) as llm:
        outputs = []
        for number, (prompt, length) in enumerate(workload):
            params = SamplingParams(**sampling(number), max_tokens=length, ignore_eos=True)
            [result] = llm.generate([prompt], params, show_progress=False)
            outputs.append(result.outputs[0].token_ids)
    return outputs


def sampling(number: int) -> dict:
    return {"temperature": 0} if number % 2 else {"temperature": 1, "top_p": 0.9, "seed": number}


async def ask_all(url: str, workload: Workload) -> list[list[int]]:
    """Every request, by clients that each send their next one when the last is answered."""
    outputs: list[list[int]] = [[] for _ in workload]
    numbers = iter(range(len(workload)))

    async def client(http: httpx.AsyncClient) -> None:
        for number in numbers:
            prompt, length = workload[number]
            body = {
                "model": "test",
                "prompt": prompt,
                "max_tokens": length,
                **sampling(number),
                "ignore_eos": True,
                "return_token_ids": True,
            }
            reply = await http.post("/v1/completions", json=body)
            assert reply.status_code == 200, reply.text
            outputs[number] = reply.json()["choices"][0]["token_ids"]

    limits = httpx.Limits(max_connections=NUM_CLIENTS)
    async with httpx.AsyncClient(base_url=url, timeout=120, limits=limits) as http:
        await asyncio.gather(*(client(http) for _ in range(NUM_CLIENTS)))
    return outputs


def num_preemptions(server: Serving) -> int:
    return sum(record.num_preemptions for record in server.engine.recorder.requests())


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_request_ends_with_its_solo_answer(
    variant: str, tiny_model: Path, workload: Workload, alone: list[list[int]]
) -> None:
    settings = {
        "model": tiny_model,
        "max_model_len": MAX_LEN,
        "block_size": BLOCK_SIZE,
        "num_gpu_blocks_override": NUM_BLOCKS,
        "max_num_batched_tokens": 512,
        **VARIANTS[variant],
    }
    with serving(**settings) as server:
        # All clients are there when the second step begins, however slowly they come.
        with held(server.engine, (1, lambda asked: asked.num_submitted >= NUM_CLIENTS)):
            outputs = asyncio.run(ask_all(server.url, workload))
        server.check_clean()
        assert len(server.engine.recorder.requests()) == NUM_REQUESTS
        preempted = num_preemptions(server)
    different = [i for i in range(NUM_REQUESTS) if outputs[i] != alone[i]]
    assert different == []
    # A static batch is chosen to fit, and nobody joins it later: it runs short of blocks far less often.
    assert preempted >= (1 if "static" in variant else 20)
