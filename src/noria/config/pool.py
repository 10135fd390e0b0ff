"""The question how long a request may be and how many blocks there are, and its answer, as data.

It is one question, for each of the two bounds the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from noria.config.asked import EngineOptions, MemoryOptions
from noria.config.budget import Budget, Demand
from noria.config.hardware import Hardware
from noria.config.option import AUTO


class LengthSource(Enum):
    ASKED = "asked"
    MODEL = "model"
    AUTO = "auto"


@dataclass(frozen=True, slots=True)
class LengthGoal:
    """The longest request to aim at. Only one that was asked for as a number is kept or refused."""

    num_tokens: int
    source: LengthSource
    reason: str

    @property
    def is_fixed(self) -> bool:
        return self.source is LengthSource.ASKED


@dataclass(frozen=True, slots=True)
class PoolQuestion:
    """dtype: of weights and KV. max_num_seqs: most requests that run at once.

    demand: what the engine takes. leaner: what it would take with smaller steps, which lean_flags ask for.
    """

    memory: MemoryOptions
    goal: LengthGoal
    demand: Demand
    leaner: Demand
    lean_flags: str
    hardware: Hardware
    dtype: str
    max_num_seqs: int


@dataclass(frozen=True, slots=True)
class Sizing:
    """The answer: a request of max_model_len fits the pool, the whole fits the budget."""

    max_model_len: int
    num_blocks: int
    budget: Budget


def length_goal(asked: EngineOptions, max_position: int) -> LengthGoal:
    """What max_model_len aims at. max_position: the longest sequence that can be served, in tokens."""
    length = asked.memory.max_model_len
    if length is None:
        return LengthGoal(max_position, LengthSource.MODEL, "the model's own")
    if length != AUTO:
        return LengthGoal(min(int(length), max_position), LengthSource.ASKED, "asked for")
    step = asked.scheduler.max_num_batched_tokens
    if asked.scheduler.enable_chunked_prefill or step >= max_position:
        return LengthGoal(max_position, LengthSource.AUTO, "auto: as long as the model allows")
    return LengthGoal(step, LengthSource.AUTO, "auto: the longest prompt that one step reads whole")
