"""Requests, and an intake that has seen a steady engine, for tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from noria.config.engine import EngineConfig, QueueConfig
from noria.config.tenant import ANYBODY, Tenant
from noria.core.outputs import FinishReason
from noria.engine.crowd import Charged, Crowd
from noria.engine.forecast import Forecast
from noria.engine.intake import Intake
from noria.engine.messages import GenerateRequest, RequestRecord, StepRecord
from noria.engine.pace import Pace
from noria.sampling.params import SamplingParams
from support_engine import engine_config


def request(
    name: str,
    num_prompt: int = 10,
    max_tokens: int = 20,
    tenant: Tenant = ANYBODY,
    timeout_s: float | None = None,
    n: int = 1,
) -> GenerateRequest:
    params = SamplingParams(temperature=0.0, max_tokens=max_tokens, n=n)
    return GenerateRequest(name, (1,) * num_prompt, params, 0, tenant=tenant, timeout_s=timeout_s)


def config(max_num_seqs: int = 4, requests: int | None = None, tokens: int | None = None) -> EngineConfig:
    base = engine_config(num_blocks=1024, max_num_seqs=max_num_seqs)
    return replace(base, queue=QueueConfig(requests, tokens))


def step_record(
    step: int = 0,
    start_s: float = 0.0,
    seconds: float = 0.1,
    num_prefill_tokens: int = 0,
    num_decode_seqs: int = 0,
    num_running: int = 1,
    num_waiting: int = 0,
) -> StepRecord:
    return StepRecord(
        step=step,
        start_s=start_s,
        plan_s=0.0,
        launch_s=0.0,
        wait_s=seconds,
        commit_s=0.0,
        collected_s=0.0,
        work=(),
        num_prefill_seqs=0,
        num_decode_seqs=num_decode_seqs,
        num_prefill_tokens=num_prefill_tokens,
        prefill_context_sum=0.0,
        num_decode_kv_tokens=0,
        num_prompt_tokens=num_prefill_tokens,
        num_recomputed_tokens=0,
        num_sampled_tokens=num_decode_seqs,
        prefix_queries=0,
        prefix_hits=0,
        num_preemptions=0,
        num_running=num_running,
        num_waiting=num_waiting,
        num_blocks=100,
        num_blocks_used=10,
        num_blocks_cached=0,
        ttfts_s=(),
        token_gaps_s=(),
    )


def request_record(num_prompt: int, num_output: int, num_cached: int = 0) -> RequestRecord:
    return RequestRecord(
        request_id="r",
        accepted_s=0.0,
        first_scheduled_s=0.0,
        first_token_s=0.0,
        last_token_s=1.0,
        finished_s=1.0,
        num_prompt_tokens=num_prompt,
        num_output_tokens=num_output,
        num_cached_tokens=num_cached,
        num_preemptions=0,
        priority=0,
        max_tokens=None,
        n=1,
        finish=FinishReason.LENGTH,
    )


def teach(intake: Intake, num_output: int = 20) -> None:
    """Steps of 10 ms, 1 ms a prompt token and 10 ms a decode; requests of 10 tokens in and `num_output` out."""
    start_s = 0.0
    for step in range(300):
        tokens, decodes = step % 3 * 10, 1 + step % 4
        seconds = 0.010 + 0.001 * tokens + 0.010 * decodes
        intake.on_step(
            step_record(step, start_s, seconds, num_prefill_tokens=tokens, num_decode_seqs=decodes)
        )
        start_s += seconds
    for _ in range(100):
        intake.on_request(request_record(10, num_output))


def crowd(
    num_queued: int = 0,
    num_queued_tokens: int = 0,
    num_live: int = 0,
    expected_output: float = 0.0,
    limits: QueueConfig | None = None,
    pace: Pace | None = None,
    **forecast: Any,
) -> Crowd:
    """What a request meets in an engine of 8 places, unless stated."""
    settled = {"num_places": 8, **forecast}
    return Crowd(
        num_queued,
        num_queued_tokens,
        num_live,
        expected_output,
        limits or QueueConfig(),
        256,
        True,
        Forecast(pace, **settled),
        Charged(num_queued, num_queued_tokens),
    )


# Steps of 10 ms, 1 ms a prompt token and 10 ms a decode.
PACE = Pace(0.010, 0.001, 0.010)
FULL = crowd(num_queued=3, num_queued_tokens=30, num_live=11, limits=QueueConfig(3, 1000))
# 12 sequences of 20 tokens: 5 too many for one that comes, each with 20 * 90 / 8 ms of steps, 0.04 s to read: 1.165 s.
BUSY = crowd(4, 40, 12, 240.0, QueueConfig(64, 10_000), PACE, mean_prompt=10.0, share_whole=1.0)
