"""The table that is shown at start: where the memory goes, and what was chosen and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from noria.config.queue_limits import REQUESTS_CHOICE, TOKENS_CHOICE
from noria.config.resolved import Choice, MemoryTable, Resolved
from noria.config.sizes import format_size
from noria.config.step_budget import STEP_CHOICE


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    value: str
    note: str


def startup_table(resolved: Resolved) -> list[Row]:
    """Memory first, from the machine down to requests, then every choice with its reason."""
    return [*_memory_rows(resolved.memory), *(_choice_row(choice) for choice in resolved.choices)]


def late_rows(resolved: Resolved) -> list[Row]:
    """What is settled after the table is shown: what a step may compute, if it was timed, and what may wait."""
    is_timed = resolved.config.scheduler.step_cost is not None
    names = (STEP_CHOICE,) * is_timed + (REQUESTS_CHOICE, TOKENS_CHOICE)
    return [_choice_row(choice) for choice in resolved.choices if choice.name in names]


def render(rows: Sequence[Row], beside: Sequence[Row] = ()) -> str:
    """The rows as plain text in columns, one a line; the columns are as wide as `beside` needs them, too."""
    name_width = max((len(row.name) for row in (*rows, *beside)), default=0)
    value_width = max((len(row.value) for row in (*rows, *beside)), default=0)
    lines = (f"{row.name:<{name_width}}  {row.value:>{value_width}}  {row.note}".rstrip() for row in rows)
    return "\n".join(lines)


def notices(resolved: Resolved) -> list[str]:
    """What differs from what a user may count on, a sentence each."""
    return [f"{c.name} is {c.value}: {c.reason}" for c in resolved.choices if c.is_notice]


def _memory_rows(memory: MemoryTable) -> list[Row]:
    unused = memory.budget_bytes - memory.process_bytes - memory.weights_bytes - memory.workspace_bytes
    unused -= memory.pool_bytes
    return [
        Row("memory in all", format_size(memory.total_bytes), memory.total_source),
        Row("free at start", format_size(memory.available_bytes), ""),
        Row("budget of Noria", format_size(memory.budget_bytes), "of which:"),
        Row("  process", format_size(memory.process_bytes), "interpreter, libraries, tokenizer, server"),
        Row("  weights", format_size(memory.weights_bytes), ""),
        Row("  workspace", format_size(memory.workspace_bytes), "what a step computes with"),
        Row("  KV cache", format_size(memory.pool_bytes), _pool_words(memory)),
        Row("  unused", format_size(unused), ""),
        Row("tokens in KV cache", str(memory.num_tokens), ""),
        Row("longest requests", str(memory.num_longest_requests), _concurrency_words(memory)),
    ]


def _pool_words(memory: MemoryTable) -> str:
    each = f"{memory.block_size} tokens and {format_size(memory.block_bytes)}"
    return f"blocks: {memory.num_blocks}, each of {each}"


def _concurrency_words(memory: MemoryTable) -> str:
    return f"of max_model_len ({memory.max_model_len} tokens) fit at once"


def _choice_row(choice: Choice) -> Row:
    mark = "notice: " if choice.is_notice else ""
    return Row(choice.name, str(choice.value), mark + choice.reason)
