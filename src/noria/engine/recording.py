"""Turns what the loop saw into records."""

from __future__ import annotations

from typing import NamedTuple

from noria.core.outputs import FinishReason
from noria.core.plan import StepPlan, Work
from noria.core.request import Request
from noria.core.tally import StepTally
from noria.engine.messages import EngineStats, RequestRecord, StepRecord

BlockChanges = tuple[tuple[int, int], ...]


class StepTimes(NamedTuple):
    """Instants of a step, in seconds of the engine clock."""

    start_s: float
    planned_s: float
    launched_s: float
    collected_s: float
    committed_s: float


def is_decode(work: Work) -> bool:
    """One token that completes what is known: what people call decoding. (A prompt's last lone token counts too.)"""
    return work.num_new == 1 and work.samples


def step_record(
    plan: StepPlan, times: StepTimes, tally: StepTally, stats: EngineStats, changed_blocks: BlockChanges
) -> StepRecord:
    """Record of a committed step; `stats` is the state after it."""
    chunks = [work for work in plan.work if not (work.num_new == 1 and work.samples)]
    num_decodes = len(plan.work) - len(chunks)
    # Of all work, less that of the chunks: most work of most steps is decodes.
    context = sum([work.num_computed for work in plan.work]) - sum([work.num_computed for work in chunks])
    return StepRecord(
        step=plan.step,
        start_s=times.start_s,
        plan_s=times.planned_s - times.start_s,
        launch_s=times.launched_s - times.planned_s,
        wait_s=times.collected_s - times.launched_s,
        commit_s=times.committed_s - times.collected_s,
        collected_s=times.collected_s,
        work=plan.work,
        num_prefill_seqs=len(chunks),
        num_decode_seqs=num_decodes,
        num_prefill_tokens=sum([work.num_new for work in chunks]),
        prefill_context_sum=sum([work.num_new * (work.num_computed + work.num_new / 2) for work in chunks]),
        num_decode_kv_tokens=context + num_decodes,
        num_prompt_tokens=tally.num_prompt_tokens,
        num_recomputed_tokens=tally.num_recomputed_tokens,
        num_sampled_tokens=tally.num_sampled_tokens,
        prefix_queries=tally.prefix_queries,
        prefix_hits=tally.prefix_hits,
        num_preemptions=tally.num_preemptions,
        num_running=stats.num_running,
        num_waiting=stats.num_waiting,
        num_blocks=stats.num_blocks,
        num_blocks_used=stats.num_blocks_used,
        num_blocks_cached=stats.num_blocks_cached,
        ttfts_s=tuple(tally.ttfts_s),
        token_gaps_s=tuple(tally.token_gaps_s),
        arrived_ids=tuple(tally.arrived_ids),
        preempted_ids=tuple(tally.preempted_ids),
        changed_blocks=changed_blocks,
        unready_ids=tuple(tally.unready_ids),
    )


def request_record(
    request: Request, finish: FinishReason, now_s: float, num_accepted: int, changed_blocks: BlockChanges
) -> RequestRecord:
    """Record of a request that has just ended. num_accepted: requests that the engine has accepted so far."""
    life = request.life
    return RequestRecord(
        request_id=request.id,
        accepted_s=life.arrival_s,
        first_scheduled_s=life.first_scheduled_s,
        first_token_s=life.first_token_s,
        last_token_s=life.last_token_s,
        finished_s=now_s,
        num_prompt_tokens=request.num_prompt,
        num_output_tokens=request.num_output,
        num_cached_tokens=life.num_cached,
        num_preemptions=life.num_preemptions,
        priority=request.claim.priority,
        max_tokens=request.params.max_tokens,
        n=request.params.n,
        finish=finish,
        num_accepted=num_accepted,
        changed_blocks=changed_blocks,
    )
