"""How much memory the engine may use, and how much it takes."""

from __future__ import annotations

from dataclasses import dataclass

from noria.config.footprint import Footprint
from noria.config.hardware import Hardware
from noria.config.sizes import format_size

# What the process will take after the hardware was probed, besides what is counted apart: the tokenizer's
# tables, the web framework, the heap's slack.
PROCESS_GROWTH_BYTES = 128 * 2**20

ACCELERATOR_SHARE = 0.92
CPU_SHARE = 0.5
CPU_SHARE_AT_MOST = 0.9  # where the model needs more than CPU_SHARE and nobody stated a share

# Of what is free on a CPU at start, this is left for the rest of the machine: a share of the total, bounded.
_HEAD_ROOM_SHARE = 0.05
_HEAD_ROOM_AT_LEAST = 64 * 2**20
_HEAD_ROOM_AT_MOST = 2**30


@dataclass(frozen=True, slots=True)
class Demand:
    """What an engine takes, as a function of its longest request and of its number of blocks.

    process_bytes: interpreter, libraries, tokenizer, server. workspace_bytes: but for the part that grows with
    the longest request, `workspace_bytes_per_context_token` for each of its tokens. max_blocks: more than that are of
    no use, as no request holds any after its step; None where they do.
    """

    process_bytes: int
    weights_bytes: int
    workspace_bytes: int
    workspace_bytes_per_context_token: int
    block_size: int
    block_bytes: int
    max_blocks: int | None = None

    def num_blocks(self, length: int) -> int:
        """Blocks that one request of `length` tokens takes."""
        return -(-length // self.block_size)

    def workspace(self, length: int) -> int:
        return self.workspace_bytes + length * self.workspace_bytes_per_context_token

    def without_pool(self, length: int) -> int:
        return self.process_bytes + self.weights_bytes + self.workspace(length)

    def with_blocks(self, length: int, num_blocks: int) -> int:
        return self.without_pool(length) + num_blocks * self.block_bytes

    def with_one_request(self, length: int) -> int:
        """The least memory that serves requests of up to `length` tokens, one at a time."""
        return self.with_blocks(length, self.num_blocks(length))

    def longest_within(self, num_bytes: int, limit: int) -> int:
        """The longest request, at most `limit` tokens, that `num_bytes` serve; 0 when not even one token."""
        low, high = 0, limit
        while low < high:
            middle = (low + high + 1) // 2
            if self.with_one_request(middle) <= num_bytes:
                low = middle
            else:
                high = middle - 1
        return low

    def blocks_within(self, num_bytes: int, length: int) -> int:
        """Blocks that `num_bytes` hold beside everything else; may be negative."""
        return (num_bytes - self.without_pool(length)) // self.block_bytes


def demand_of(
    footprint: Footprint, hardware: Hardware, max_num_batched_tokens: int, max_num_seqs: int, block_size: int
) -> Demand:
    growth = PROCESS_GROWTH_BYTES if hardware.device == "cpu" else 0
    return Demand(
        process_bytes=hardware.process_memory_bytes + growth,
        weights_bytes=footprint.weights_bytes,
        workspace_bytes=footprint.workspace_bytes
        + max_num_batched_tokens * footprint.workspace_bytes_per_step_token
        + max_num_seqs * footprint.workspace_bytes_per_seq,
        workspace_bytes_per_context_token=footprint.workspace_bytes_per_context_token,
        block_size=block_size,
        block_bytes=block_size * footprint.kv_bytes_per_token,
        max_blocks=None
        if footprint.keeps_kv
        else step_blocks(max_num_batched_tokens, max_num_seqs, block_size),
    )


def step_blocks(max_num_batched_tokens: int, max_num_seqs: int, block_size: int) -> int:
    """Blocks that the whole prompts of one step take at most: each may leave its last one nearly empty."""
    return max_num_batched_tokens // block_size + max_num_seqs


@dataclass(frozen=True, slots=True)
class Budget:
    """num_bytes: what Noria as a whole may use. was_raised: above the default share, unasked."""

    num_bytes: int
    asked_share: float | None
    reason: str
    was_raised: bool = False


def usable_now(hardware: Hardware) -> int:
    """What Noria as a whole could hold without pushing anything else out."""
    free = hardware.available_memory_bytes
    if hardware.device == "cpu":
        head_room = int(hardware.total_memory_bytes * _HEAD_ROOM_SHARE)
        free -= min(max(head_room, _HEAD_ROOM_AT_LEAST), _HEAD_ROOM_AT_MOST)
    return hardware.process_memory_bytes + max(free, 0)


def choose_budget(asked_share: float | None, needed_bytes: int, hardware: Hardware) -> Budget:
    """The budget for an engine that is of use from `needed_bytes` on.

    A stated share is kept. The default share of a CPU is modest, for the machine is not Noria's alone; a model
    that needs more takes that much more, up to CPU_SHARE_AT_MOST.
    """
    total, usable = hardware.total_memory_bytes, usable_now(hardware)
    if asked_share is not None:
        share, origin = asked_share, "as asked"
    elif hardware.device == "cpu":
        share, origin = CPU_SHARE, "the default on a CPU"
    else:
        share, origin = ACCELERATOR_SHARE, "the default on an accelerator"
    stated = int(total * share)
    of_total = f"{share:g} ({origin}) of {format_size(total)} ({hardware.memory_limit_source})"
    if asked_share is None:
        raised = min(needed_bytes, int(total * share_at_most(hardware)), usable)
        if raised > stated:
            most = f"unasked at most {share_at_most(hardware)}"
            reason = f"raised from {of_total} because the model needs more; {most}"
            return Budget(raised, asked_share, reason, was_raised=True)
    if stated > usable:
        return Budget(usable, asked_share, f"what is free now, less than {of_total}")
    return Budget(stated, asked_share, of_total)


def share_at_most(hardware: Hardware) -> float:
    """The largest share that is taken unasked."""
    return CPU_SHARE_AT_MOST if hardware.device == "cpu" else ACCELERATOR_SHARE
