"""H04: host memory climbed over hours, until the process was killed.

The kind: whatever outlives a request has a stated bound.
"""

from __future__ import annotations

import gc
import random
from collections import Counter
from typing import Any

import httpx
import pytest

from support_models import cached_checkpoint
from support_serving import serving

WARM_UP, REQUESTS = 300, 500
BOUNDED = ("StepRecord", "RequestRecord", "Work")  # of the latest steps and requests, for the timeline
LENGTH = 200


def bodies(kind: str, count: int, seed: int) -> list[dict[str, Any]]:
    draw = random.Random(seed)
    made = []
    for _ in range(count):
        prompt = [draw.randrange(5, 300) for _ in range(LENGTH)]
        made.append({"prompt": prompt, "max_tokens": 1, "user": f"user {draw.random()}"})
        if kind == "left":
            made[-1] |= {"max_tokens": 100, "ignore_eos": True, "stream": True}
        if kind == "refused":
            made[-1]["temperature"] = -1
    return made


def ask(client: httpx.Client, body: dict[str, Any], leaves: bool) -> int:
    """The status; who leaves does so at the first word."""
    if not leaves:
        return client.post("/v1/completions", json=body).status_code
    with client.stream("POST", "/v1/completions", json=body) as answer:
        next(answer.iter_raw())
        return answer.status_code


def num_objects() -> Counter[str]:
    gc.collect()
    return Counter(
        type(item).__qualname__ for item in gc.get_objects() if str(type(item).__module__).startswith("noria")
    )


@pytest.mark.parametrize("kind", ["served", "refused", "left"])
def test_nothing_is_kept_of_requests_that_are_over(kind: str) -> None:
    """In counts of our own objects, which say what grows before megabytes would."""
    settings = {"num_gpu_blocks_override": 64, "max_model_len": 512}
    with (
        serving(model=cached_checkpoint("llama"), **settings) as running,
        httpx.Client(base_url=running.url, timeout=60) as client,
    ):
        looks = []
        for seed, count in enumerate((WARM_UP, REQUESTS, REQUESTS)):
            for body in bodies(kind, count, seed):
                assert ask(client, body, leaves=kind == "left") == (400 if kind == "refused" else 200)
            running.check_clean()
            looks.append(num_objects())
        counts = {name: after for name, after in looks[2].items() if name not in BOUNDED}
        grown = {
            name: after - looks[1][name] for name, after in counts.items() if after > looks[1][name] + 20
        }
        assert grown == {}
