"""The resolved settings of an engine: every value final, each with one owner."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from noria.config.model import ModelConfig


class AdmissionPolicy(str, Enum):
    CONTINUOUS = "continuous"  # a waiting request joins at any step
    STATIC = "static"  # a batch is gathered, run until its last member ends, then the next one


class SchedulingPolicy(str, Enum):
    FCFS = "fcfs"
    PRIORITY = "priority"


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    max_num_batched_tokens: int
    max_num_seqs: int
    max_model_len: int  # prompt and output together, in tokens
    enable_chunked_prefill: bool = True
    admission_policy: AdmissionPolicy = AdmissionPolicy.CONTINUOUS
    scheduling_policy: SchedulingPolicy = SchedulingPolicy.FCFS
    # Under the priority policy one priority level is worth this many seconds of waiting, so nobody starves.
    priority_aging_s: float = 30.0


@dataclass(frozen=True, slots=True)
class CacheConfig:
    block_size: int  # tokens
    num_blocks: int
    enable_prefix_caching: bool = True


@dataclass(frozen=True, slots=True)
class EngineConfig:
    model: ModelConfig
    model_name: str  # identifies the weights in the prefix cache's key
    scheduler: SchedulerConfig
    cache: CacheConfig
    dtype: str  # float32 | bfloat16 | float16: of weights, activations and KV
    device: str  # cpu | cuda
    num_threads: int
    seed: int  # draws the seeds of requests that state none
