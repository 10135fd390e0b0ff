"""Records in Chrome's trace event format: open the file in Perfetto or chrome://tracing and look at the batch.

Format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU (times in microseconds).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from noria.core.plan import Work
from noria.engine.messages import RequestRecord, StepRecord
from noria.engine.recording import is_decode

_ENGINE, _SEQUENCES, _REQUESTS = 1, 2, 3
_PARTS = ("plan", "launch", "wait", "commit")


def chrome_trace(steps: Sequence[StepRecord], requests: Sequence[RequestRecord]) -> dict[str, Any]:
    """A trace of three processes: the engine's steps with their parts and counters; a lane a sequence with its
    chunks and decodes; and each finished request's queue, prefill and decode spans.
    """
    events = [
        _name("process_name", _ENGINE, "engine"),
        _name("process_name", _SEQUENCES, "batch (one lane a sequence)"),
        _name("process_name", _REQUESTS, "requests"),
        _name("thread_name", _ENGINE, "steps"),
    ]
    lanes = assign_lanes(steps)
    for step in steps:
        events += _step_events(step)
        events += [_work_event(step, work, lanes[work.request_id]) for work in step.work]
    for request in requests:
        events += _request_events(request)
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def assign_lanes(steps: Sequence[StepRecord]) -> dict[str, int]:
    """A lane for each sequence, the lowest that is free from its first step to its last."""
    last_seen = {work.request_id: step.step for step in steps for work in step.work}
    lanes: dict[str, int] = {}
    busy_until: list[int] = []  # per lane: the last step of the sequence that has it
    for step in steps:
        for work in step.work:
            if work.request_id in lanes:
                continue
            free = (lane for lane, until in enumerate(busy_until) if until < step.step)
            lane = next(free, len(busy_until))
            if lane == len(busy_until):
                busy_until.append(0)
            busy_until[lane] = last_seen[work.request_id]
            lanes[work.request_id] = lane
    return lanes


def _step_events(step: StepRecord) -> list[dict[str, Any]]:
    durations = (step.plan_s, step.launch_s, step.wait_s, step.commit_s)
    args = {
        "prefill tokens": step.num_prefill_tokens,
        "prefill sequences": step.num_prefill_seqs,
        "decode sequences": step.num_decode_seqs,
        "recomputed tokens": step.num_recomputed_tokens,
        "prefix hits": step.prefix_hits,
    }
    events = [_span(_ENGINE, 0, f"step {step.step}", step.start_s, sum(durations), args)]
    start_s = step.start_s
    for part, duration_s in zip(_PARTS, durations, strict=True):
        events.append(_span(_ENGINE, 0, part, start_s, duration_s, {}))
        start_s += duration_s
    counters = {
        "blocks": {"used": step.num_blocks_used, "cached": step.num_blocks_cached},
        "requests": {"running": step.num_running, "waiting": step.num_waiting},
        "tokens": {"prefill": step.num_prefill_tokens, "decode": step.num_decode_seqs},
    }
    for name, values in counters.items():
        events.append({"ph": "C", "pid": _ENGINE, "name": name, "ts": step.start_s * 1e6, "args": values})
    if step.num_preemptions:
        instant = {"ph": "i", "pid": _ENGINE, "tid": 0, "s": "p", "ts": step.start_s * 1e6}
        events.append({**instant, "name": f"{step.num_preemptions} preempted"})
    return events


def _work_event(step: StepRecord, work: Work, lane: int) -> dict[str, Any]:
    name = "decode" if is_decode(work) else f"prefill {work.num_new}"
    duration_s = step.plan_s + step.launch_s + step.wait_s + step.commit_s
    args = {"request": work.request_id, "context": work.num_computed, "new": work.num_new}
    return _span(_SEQUENCES, lane, name, step.start_s, duration_s, args)


def _request_events(request: RequestRecord) -> list[dict[str, Any]]:
    scheduled, first = request.first_scheduled_s, request.first_token_s
    spans = [("queue", request.accepted_s, scheduled if scheduled is not None else request.finished_s)]
    if scheduled is not None:
        spans.append(("prefill", scheduled, first if first is not None else request.finished_s))
    if first is not None:
        spans.append(("decode", first, request.finished_s))
    args = {
        "prompt tokens": request.num_prompt_tokens,
        "cached tokens": request.num_cached_tokens,
        "output tokens": request.num_output_tokens,
        "preemptions": request.num_preemptions,
        "finish": request.finish.value,
    }
    common = {"cat": "request", "id": request.request_id, "pid": _REQUESTS, "tid": 0}
    whole = (request.request_id, request.accepted_s, request.finished_s)
    events: list[dict[str, Any]] = []
    for name, start_s, end_s in [whole, *spans]:
        events.append({**common, "ph": "b", "name": name, "ts": start_s * 1e6, "args": args})
        events.append({**common, "ph": "e", "name": name, "ts": end_s * 1e6})
    return events


def _span(pid: int, tid: int, name: str, start_s: float, duration_s: float, args: dict) -> dict[str, Any]:
    return {
        "ph": "X",
        "pid": pid,
        "tid": tid,
        "name": name,
        "ts": start_s * 1e6,
        "dur": duration_s * 1e6,
        "args": args,
    }


def _name(kind: str, pid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": pid, "tid": 0, "name": kind, "args": {"name": name}}
