"""What the steps of an engine in this process did, kept for the whole run."""

from __future__ import annotations

from typing import Any

from noria.engine.messages import RequestRecord, StepRecord


class StepLog:
    """A RecordListener on the engine's thread. rows: a step each, fields as the step record of the design has them."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        names = ("preemptions", "prefix_queries", "prefix_hits", "computed_tokens", "recomputed_tokens")
        self.totals: dict[str, int] = dict.fromkeys(names, 0)
        self._requests: dict[str, RequestRecord] = {}

    def on_step(self, record: StepRecord) -> None:
        self.rows.append(step_row(record))
        totals = self.totals
        totals["preemptions"] += record.num_preemptions
        totals["prefix_queries"] += record.prefix_queries
        totals["prefix_hits"] += record.prefix_hits
        totals["computed_tokens"] += sum(work.num_new for work in record.work)
        totals["recomputed_tokens"] += record.num_recomputed_tokens

    def on_request(self, record: RequestRecord) -> None:
        self._requests[record.request_id] = record

    def take_request(self, request_id: str) -> RequestRecord | None:
        return self._requests.pop(request_id, None)


def step_row(record: StepRecord) -> dict[str, Any]:
    """Instants are the engine clock's, in seconds."""
    return {
        "step": record.step,
        "t_start": record.start_s,
        "sched_us": record.plan_s * 1e6,
        "exec_us": (record.launch_s + record.wait_s) * 1e6,
        "post_us": record.commit_s * 1e6,
        "n_prefill_seqs": record.num_prefill_seqs,
        "n_decode_seqs": record.num_decode_seqs,
        "prefill_tokens": record.num_prefill_tokens,
        "prefill_ctx_sum": record.prefill_context_sum,
        "decode_kv_tokens": record.num_decode_kv_tokens,
        "blocks_used": record.num_blocks_used,
        "blocks_cached": record.num_blocks_cached,
        "blocks": record.num_blocks,
        "running": record.num_running,
        "waiting": record.num_waiting,
        "preempted": record.num_preemptions,
        "recomputed_tokens": record.num_recomputed_tokens,
        "work": [[work.request_id, work.num_computed, work.num_new] for work in record.work],
    }
