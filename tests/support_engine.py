"""Builds schedulers and loops for tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from noria.config.engine import CacheConfig, EngineConfig, SchedulerConfig
from noria.config.model import ModelConfig, RopeConfig
from noria.config.pooling import PoolingParams
from noria.config.tenant import ANYBODY, Tenant
from noria.core.clock import VirtualClock
from noria.core.kv import KVCacheManager
from noria.core.outputs import Delta
from noria.core.policies import choose_policies
from noria.core.scheduler import Scheduler
from noria.engine.loop import EngineLoop
from noria.engine.messages import GenerateRequest, PoolRequest
from noria.engine.namespaces import namespaces
from noria.engine.records import Recorder
from noria.sampling.params import SamplingParams
from support_ledger_runner import LedgerRunner, NextToken, history_token

EOS = 49
MODEL = ModelConfig(
    architecture="llama",
    vocab_size=50,
    hidden_size=8,
    intermediate_size=16,
    num_layers=1,
    num_heads=1,
    num_kv_heads=1,
    head_dim=8,
    max_position=4096,
    norm_eps=1e-5,
    rope=RopeConfig(),
    tie_word_embeddings=True,
    eos_token_ids=(EOS,),
)


def engine_config(
    num_blocks: int = 64, block_size: int = 4, prefix: bool = True, **scheduler: object
) -> EngineConfig:
    settings = SchedulerConfig(
        max_num_batched_tokens=64, max_num_seqs=16, max_model_len=min(4096, num_blocks * block_size)
    )
    return EngineConfig(
        model=MODEL,
        model_name="test",
        scheduler=replace(settings, **scheduler),
        cache=CacheConfig(block_size=block_size, num_blocks=num_blocks, enable_prefix_caching=prefix),
        dtype="float32",
        device="cpu",
        num_threads=1,
        seed=0,
    )


def make_scheduler(config: EngineConfig) -> Scheduler:
    return Scheduler(
        config.scheduler,
        choose_policies(config.scheduler),
        KVCacheManager(config.cache),
        config.model.eos_token_ids,
    )


def loop_factory(
    config: EngineConfig, runner: LedgerRunner
) -> Callable[[Callable[[list[Delta]], None]], EngineLoop]:
    return lambda publish: EngineLoop(
        make_scheduler(config), runner, VirtualClock(), Recorder(), namespaces(config), publish
    )


class Harness:
    """An engine loop over a ledger runner, stepped by hand; outputs are gathered by request. pause_s: after a step."""

    pause_s = 1.0

    def __init__(self, config: EngineConfig, next_token: NextToken = history_token) -> None:
        self.runner = LedgerRunner(config.cache.block_size, next_token)
        self.deltas: list[Delta] = []
        self.loop = loop_factory(config, self.runner)(self.deltas.extend)
        self.clock: VirtualClock = self.loop.clock

    @property
    def scheduler(self) -> Scheduler:
        return self.loop.scheduler

    def add(
        self,
        request_id: str,
        prompt: list[int],
        priority: int = 0,
        salt: str = "",
        tenant: Tenant = ANYBODY,
        **params: object,
    ) -> None:
        settings = SamplingParams(**{"temperature": 0.0, "ignore_eos": True, **params})
        self.loop.add(
            GenerateRequest(request_id, tuple(prompt), settings, 0, priority, salt, tenant), self.clock.now()
        )

    def pool(self, request_id: str, prompt: list[int], priority: int = 0, **params: object) -> None:
        """Add a prompt that is pooled."""
        request = PoolRequest(request_id, tuple(prompt), PoolingParams(**params), priority)
        self.loop.add(request, self.clock.now())

    def step(self, count: int = 1) -> None:
        for _ in range(count):
            self.loop.step()
            self.loop._flush()  # at once, so that a test sees the news of the step it ran
            self.scheduler.check()
            self.clock.advance(self.pause_s)

    def run(self, max_steps: int = 10_000) -> int:
        """Step until nothing is left; returns the number of steps that computed something."""
        before = len(self.runner.plans)
        while self.loop.has_work:
            self.step()
            assert len(self.runner.plans) - before <= max_steps, f"no end after {max_steps} steps"
        return sum(1 for plan in self.runner.plans[before:] if plan.work)

    def output(self, request_id: str) -> list[int]:
        return [token for delta in self.deltas if delta.request_id == request_id for token in delta.token_ids]

    def last(self, request_id: str) -> Delta:
        return [delta for delta in self.deltas if delta.request_id == request_id][-1]


def solo_output(
    prompt: list[int], num_tokens: int, next_token: NextToken = history_token, name: str = ""
) -> list[int]:
    """What a request gives when nothing else exists."""
    tokens = list(prompt)
    for _ in range(num_tokens):
        tokens.append(next_token(name, tokens))
    return tokens[len(prompt) :]
