"""The resolved settings of an engine: every value final, each with one owner."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import sqrt

from noria.config.model import ModelConfig

# Of a step with prompts. Fewer would read the weights too often for what they compute: a step that has to take longer
# for them, does.
FEWEST_TOKENS = 64
_ROUNDING = 1e-9  # of a token: what floating point may be off by


class AdmissionPolicy(str, Enum):
    CONTINUOUS = "continuous"  # a waiting request joins at any step
    STATIC = "static"  # a batch is gathered, run until its last member ends, then the next one


class SchedulingPolicy(str, Enum):
    FAIR = "fair"  # between tenants in proportion to their weights, first come first served within each
    FCFS = "fcfs"
    PRIORITY = "priority"


@dataclass(frozen=True, slots=True)
class StepCost:
    """What a step takes, as timed at start, and what it may take. All in seconds.

    n tokens of one sequence that follow c others take n * token_s + n * (c + n / 2) * pair_s: pair_s for each
    earlier token that one attends to. fixed_s comes to every step. target_s: what a step with prompts may take beside
    answers where users stated nothing.
    """

    target_s: float
    fixed_s: float
    token_s: float
    pair_s: float

    def seconds(self, num_new: int, num_computed: int) -> float:
        """Of num_new tokens that follow num_computed others, the fixed part left out."""
        return num_new * (self.token_s + self.pair_s * (num_computed + num_new / 2))

    def tokens_within(self, seconds: float, num_computed: int) -> int:
        """The most tokens that follow num_computed others and take no longer than that."""
        # The positive root of pair_s / 2 * n^2 + first_s * n = seconds, in the form that bears pair_s = 0.
        first_s = self.token_s + self.pair_s * num_computed
        root = sqrt(first_s**2 + 2 * self.pair_s * seconds)
        return int(2 * seconds / (first_s + root) + _ROUNDING)


@dataclass(frozen=True, slots=True)
class LatencyTarget:
    """What users should wait at most, 95 times in 100, in seconds; None: no limit. One of them is stated.

    itl_s: between two tokens of an answer. ttft_s: for the first one.
    """

    itl_s: float | None = None
    ttft_s: float | None = None


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    max_num_batched_tokens: int
    max_num_seqs: int
    max_model_len: int  # prompt and output together, in tokens
    enable_chunked_prefill: bool = True
    admission_policy: AdmissionPolicy = AdmissionPolicy.CONTINUOUS
    scheduling_policy: SchedulingPolicy = SchedulingPolicy.FAIR
    # Under the priority policy one priority level is worth this many seconds of waiting, so nobody starves.
    priority_aging_s: float = 30.0
    # Limits a step besides its tokens; None where the number of tokens was stated.
    step_cost: StepCost | None = None
    # What users stated that steps are kept short for; it takes a step_cost to do so.
    latency: LatencyTarget | None = None

    @property
    def gap_s(self) -> float:
        """What lies between two tokens of an answer at most, 95 times in 100, where steps have a cost: what users
        stated, or else what that aims at.
        """
        assert self.step_cost is not None, "nothing is timed"
        stated_s = None if self.latency is None else self.latency.itl_s
        return self.step_cost.target_s if stated_s is None else stated_s

    @property
    def full_step_tokens(self) -> int:
        """What prompts at their beginning fill a step with, beside few answers: the most tokens, or fewer where time
        limits it.
        """
        cost = self.step_cost
        if cost is None or not self.enable_chunked_prefill:
            return self.max_num_batched_tokens
        in_time = cost.tokens_within(max(0.0, self.gap_s - cost.fixed_s), 0)
        return min(max(1, in_time), self.max_num_batched_tokens)


@dataclass(frozen=True, slots=True)
class QueueConfig:
    """How much may wait for its first token; None: any amount, as for a batch in one's own process."""

    max_num_queued_reqs: int | None = None  # sequences
    max_num_queued_tokens: int | None = None  # of their prompts


class PrefixIsolation(str, Enum):
    NONE = "none"  # whoever sends the same tokens shares their KV
    KEY = "key"  # only requests of one tenant share


@dataclass(frozen=True, slots=True)
class CacheConfig:
    block_size: int  # tokens
    num_blocks: int
    enable_prefix_caching: bool = True
    prefix_isolation: PrefixIsolation = PrefixIsolation.NONE
    dtype: str = "float32"  # float32 | bfloat16 | float16 | int8


@dataclass(frozen=True, slots=True)
class EngineConfig:
    model: ModelConfig
    model_name: str
    scheduler: SchedulerConfig
    cache: CacheConfig
    dtype: str  # float32 | bfloat16 | float16: of weights
    device: str  # cpu
    num_threads: int
    seed: int  # draws the seeds of requests that state none
    queue: QueueConfig = QueueConfig()
    quantization: str = "none"  # none | w8 | w4: what weights are rounded to at load
    rule_time_limit_s: float = 1.0  # for the decoding rules of a step
    # Differs wherever the same tokens would get other KV; known once the model is opened.
    kv_identity: str = ""
