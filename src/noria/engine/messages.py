"""Plain data that crosses between the engine and its clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, ClassVar

from noria.config.abilities import Abilities
from noria.config.pooling import PoolingParams
from noria.config.tenant import ANYBODY, Tenant
from noria.config.tokenizer import TokenizerSpec
from noria.core.outputs import FinishReason
from noria.core.plan import Work
from noria.sampling.params import SamplingParams


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """One sequence to generate. (A user's request with n > 1 is n of these: `expand_choices`.)

    request_id: unique among the requests in the engine.
    seed: resolved; every random number of the request is a function of (seed, position).
    priority: lower goes first under the priority policy.
    cache_salt: prefixes are shared only between requests with the same salt.
    tenant: whose it is, with the limits that hold for that one now.
    timeout_s: seconds from its submission to its deadline, None for no deadline.
    """

    request_id: str
    prompt_token_ids: tuple[int, ...]
    params: SamplingParams
    seed: int
    priority: int = 0
    cache_salt: str = ""
    tenant: Tenant = ANYBODY
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True)
class PoolRequest:
    """One prompt to be read, of which something is made: see PoolingParams. Its fields are those of GenerateRequest."""

    request_id: str
    prompt_token_ids: tuple[int, ...]
    params: PoolingParams
    priority: int = 0
    cache_salt: str = ""
    tenant: Tenant = ANYBODY
    timeout_s: float | None = None

    seed: ClassVar[int] = 0  # nothing is drawn


EngineRequest = GenerateRequest | PoolRequest


def expand_choices(
    request_id: str,
    prompt_token_ids: Sequence[int],
    params: SamplingParams,
    random: Random,
    priority: int = 0,
    cache_salt: str = "",
) -> list[GenerateRequest]:
    """The n sequences of a request: choice i is `{request_id}-{i}` with seed params.seed + i (mod 2**64).

    random: draws the seed of a request that states none.
    """
    seed = params.seed if params.seed is not None else random.getrandbits(64)
    ids = tuple(prompt_token_ids)
    return [
        GenerateRequest(f"{request_id}-{i}", ids, params, (seed + i) % 2**64, priority, cache_salt)
        for i in range(params.n)
    ]


@dataclass(frozen=True, slots=True)
class EngineStats:
    """A snapshot of the engine after its latest step."""

    step: int
    num_running: int
    num_waiting: int
    num_blocks: int
    num_blocks_used: int  # referenced by a running request
    num_blocks_cached: int  # evictable, but still holding a reusable prefix
    is_alive: bool
    progress: int = 0  # moves as long as work does, also within a step
    beat_age_s: float = 0.0  # since the engine's process last gave a sign of life; 0 for one in this process


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What a client has to know of an engine that it did not build.

    model_name: as it was asked for. tokenizer: what its files say of it.
    generation_defaults: sampling values that the model's makers recommend, unless declined.
    max_model_len: prompt and output together, in tokens. cache_labels: settings of the KV cache, in words.
    seed: draws the seeds of requests that state none; None draws them from the system.
    abilities: what it is served for.
    """

    model_name: str
    tokenizer: TokenizerSpec
    generation_defaults: dict[str, Any]
    max_model_len: int
    vocab_size: int
    cache_labels: dict[str, str]
    seed: int | None = None
    abilities: Abilities = field(default_factory=Abilities)


@dataclass(frozen=True, slots=True)
class StepRecord:
    """What one step did and what it cost. Instants are the engine clock's, in seconds."""

    step: int
    start_s: float
    plan_s: float  # durations of the four parts of the step
    launch_s: float
    wait_s: float
    commit_s: float
    collected_s: float  # instant when its results were there
    work: tuple[Work, ...]
    num_prefill_seqs: int  # those that are not decodes
    num_decode_seqs: int  # one token, the last one known (a prompt's lone last token too)
    num_prefill_tokens: int
    prefill_context_sum: float  # sum over chunks of chunk * (context + chunk / 2)
    num_decode_kv_tokens: int  # sum over decodes of the context attended to
    num_prompt_tokens: int  # prompt tokens computed for the first time in this step
    num_recomputed_tokens: (
        int  # tokens computed again, after a preemption or a step that sampled nothing of them
    )
    num_sampled_tokens: int
    prefix_queries: int  # prompt tokens looked up in the prefix cache, at the first admission of a request
    prefix_hits: int  # of those, tokens found
    num_preemptions: int
    num_running: int
    num_waiting: int
    num_blocks: int
    num_blocks_used: int
    num_blocks_cached: int
    ttfts_s: tuple[float, ...]  # acceptance to first token, of the requests whose first token this is
    token_gaps_s: tuple[float, ...]  # time since the previous token, of the others
    arrived_ids: tuple[str, ...] = ()  # requests accepted since the step before
    preempted_ids: tuple[str, ...] = ()
    changed_blocks: tuple[tuple[int, int], ...] = ()  # (block, core.kv's FREE, CACHED or USED) after the step
    unready_ids: tuple[str, ...] = ()  # that sampled nothing, since what they may choose was not known yet


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One sequence's life. Instants are the engine clock's, in seconds; None where it never came to that."""

    request_id: str
    accepted_s: float
    first_scheduled_s: float | None
    first_token_s: float | None
    last_token_s: float | None
    finished_s: float
    num_prompt_tokens: int
    num_output_tokens: int
    num_cached_tokens: int  # prompt tokens not computed thanks to the prefix cache, at first admission
    num_preemptions: int
    priority: int
    max_tokens: int | None
    n: int
    finish: FinishReason
    num_accepted: int = 0  # requests that the engine had accepted when it ended
    changed_blocks: tuple[tuple[int, int], ...] = ()  # as in StepRecord: of one that ended between steps
