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

WARM_UP, REQUESTS = 100, 120
BOUNDED = ("StepRecord", "RequestRecord", "Work")  # of the latest steps and requests, for the timeline
LENGTH = 24


def bodies(kind: str, count: int, seed: int) -> list[dict[str, Any]]:
    draw = random.Random(seed)
    made = []
    for _ in range(count):
        prompt = [draw.randrange(5, 300) for _ in range(LENGTH)]
        made.append({"prompt": prompt, "max_tokens": 1, "user": f"user {draw.random()}"})
        if kind == "refused":
            made[-1]["temperature"] = -1
    return made


def num_objects() -> Counter[str]:
    gc.collect()
    return Counter(
        type(item).__qualname__ for item in gc.get_objects() if str(type(item).__module__).startswith("noria")
    )


@pytest.mark.parametrize("kind", ["served", "refused"])
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
                status = client.post("/v1/completions", json=body).status_code
                assert status == (400 if kind == "refused" else 200)
            running.check_clean()
            looks.append(num_objects())
        counts = {name: after for name, after in looks[2].items() if name not in BOUNDED}
        grown = {
            name: after - looks[1][name] for name, after in counts.items() if after > looks[1][name] + 20
        }
        assert grown == {}
