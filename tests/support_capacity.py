"""Runs of an engine whose decisions can be looked at: random loads through the client that writes a run log."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from pathlib import Path

from noria.capacity.arrivals import Arrival
from noria.capacity.features import Box, StepFeatures
from noria.capacity.step_model import Ramp, StepModel
from noria.config.engine import EngineConfig
from noria.config.errors import OverloadError
from noria.config.pooling import Pooling, PoolingParams
from noria.config.tenant import Tenant
from noria.core.clock import MonotonicClock
from noria.core.outputs import Delta, FinishReason
from noria.engine.in_process import InProcessClient
from noria.engine.making import make_loop
from noria.engine.messages import GenerateRequest, PoolRequest
from noria.engine.records import Recorder
from noria.engine.run_log import RunLog
from noria.sampling.params import SamplingParams
from support_ledger_runner import LedgerRunner

POOLINGS = (PoolingParams(), PoolingParams(Pooling.MEAN))
TENANTS = (Tenant("a"), Tenant("b", weight=3), Tenant("c"))


def logged_client(config: EngineConfig, path: Path, failing: Sequence[str] = ()) -> RunLog:
    """A real engine on its own thread, over a runner without a model. Every second of those failing is its fault."""
    runner = LedgerRunner(config.cache.block_size)
    runner.failing.update(failing)
    runner.faulty.update(failing[::2])
    client = InProcessClient(
        lambda publish: make_loop(config, runner, MonotonicClock(), Recorder(), publish), config
    )
    return RunLog(client, config, "test", str(path))


class Waiter:
    """A sink that knows when all of a number of requests have ended."""

    def __init__(self, num_requests: int) -> None:
        self._left = num_requests
        self._lock = threading.Lock()
        self._done = threading.Event()

    def __call__(self, deltas: Sequence[Delta]) -> None:
        with self._lock:
            self._left -= sum(delta.finish is not None for delta in deltas)
            if self._left == 0:
                self._done.set()

    def wait(self) -> None:
        assert self._done.wait(60), f"{self._left} requests have not ended"


def run_random_load(log: RunLog, draw: random.Random, num_requests: int) -> None:
    """Prompts that share beginnings, several tenants and priorities, deadlines, and cancels at any moment."""
    waiter = Waiter(num_requests)
    stems = [[draw.randrange(1, 49) for _ in range(draw.randrange(4, 40))] for _ in range(4)]
    for number in range(num_requests):
        prompt = draw.choice(stems) + [draw.randrange(1, 49) for _ in range(draw.randrange(0, 12))]
        params = SamplingParams(
            temperature=0.0,
            max_tokens=draw.randrange(0, 40),
            ignore_eos=draw.random() < 0.5,
            prompt_logprobs=0 if draw.random() < 0.05 else None,
        )
        request = GenerateRequest(
            f"r{number}",
            tuple(prompt),
            params,
            0,
            draw.randrange(3),
            tenant=draw.choice(TENANTS),
            timeout_s=0.01 if draw.random() < 0.05 else None,
        )
        pool = PoolRequest(
            request.request_id, request.prompt_token_ids, draw.choice(POOLINGS), tenant=request.tenant
        )
        try:
            log.submit([pool if draw.random() < 0.1 else request], waiter).result()
        except OverloadError:  # its deadline is foretold to pass
            waiter([Delta(request.request_id, finish=FinishReason.TIMEOUT)])
        if draw.random() < 0.2:
            log.cancel([f"r{draw.randrange(number + 1)}"])
    waiter.wait()


def simple_model(decode_s: float = 0.002, token_s: float = 0.0003, fixed_s: float = 0.004) -> StepModel:
    """A step takes fixed_s, token_s a token, and decode_s a sampled one. Measured everywhere, without scatter."""
    none, much = StepFeatures(0, 0, 0, 0.0, 0), StepFeatures(10**6, 10**6, 10**6, 1e12, 10**9)
    return StepModel(
        fixed_s, Ramp((0,), (0.0,), token_s), Ramp((0,), (0.0,), decode_s), 0.0, 0.0, 0.0, {}, Box(none, much)
    )


def poisson(draw: random.Random, rate: float, count: int, num_prompt: int, num_output: int) -> list[Arrival]:
    at_s = 0.0
    arrivals = []
    for number in range(count):
        at_s += draw.expovariate(rate)
        tokens = tuple(draw.randrange(1, 10**6) for _ in range(num_prompt + num_output))
        arrivals.append(Arrival(f"r{number}", at_s, tokens, num_prompt, num_output))
    return arrivals
