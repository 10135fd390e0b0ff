"""What crosses between scheduler and runner: changed by nobody, complete, free of tensors.

Everything that prices a step is in the plan; what the runner may know of a request it has been told here.
"""

from __future__ import annotations

from dataclasses import dataclass

from noria.config.pooling import PoolingParams
from noria.sampling.params import SamplingParams


@dataclass(frozen=True, slots=True)
class NewRequest:
    """A request the runner has not heard of, or has been told to forget (a preempted one that resumes).

    token_ids: every known token, prompt first. [0, num_prompt) is the prompt; what follows are outputs that
    were sampled before a preemption.
    """

    request_id: str
    token_ids: tuple[int, ...]
    num_prompt: int
    params: SamplingParams | PoolingParams
    seed: int  # resolved: params.seed, or drawn by the client


@dataclass(slots=True)
class Work:
    """One request's share of a step. Nobody changes it.

    (Nor is it frozen: that would take three times as long to make, and one is made for each sequence of each step.)

    # [0, num_computed) has KV; [num_computed, num_computed + num_new) gets it in this step
    """

    request_id: str
    num_computed: int  # tokens whose KV is already stored
    num_new: int  # tokens to compute in this step
    new_blocks: tuple[int, ...]  # blocks gained since the runner last heard of this request, in table order
    samples: bool  # the last new token yields logits and a sampled token


@dataclass(frozen=True, slots=True)
class BlockMove:
    """Copy the KV of one block, all layers, to another, before the step's work."""

    source: int
    destination: int


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One step. The runner obeys in this order: departures, arrivals, moves, work.

    A request may depart and arrive in different steps only.
    """

    step: int
    arrivals: tuple[NewRequest, ...]
    work: tuple[Work, ...]
    moves: tuple[BlockMove, ...]
    departures: tuple[str, ...]

    @property
    def is_empty(self) -> bool:
        """Nothing to compute and nothing to forget."""
        return not self.work and not self.departures

    @property
    def num_tokens(self) -> int:
        return sum(work.num_new for work in self.work)


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Log-probability of one token under the model's own logits, and its most likely alternatives.

    rank: 1 for the most likely token. top: (token id, logprob), most likely first, ties by lower id.
    """

    token_id: int
    logprob: float
    rank: int
    top: tuple[tuple[int, float], ...]


@dataclass(slots=True)
class Sampled:
    """What a step sampled for one request. Made as `Work` is."""

    request_id: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...] = ()  # as many as token_ids when asked for, else empty
    is_last: bool = False  # nothing can follow: the last of the tokens ends the output, whatever else would


@dataclass(frozen=True, slots=True)
class PromptLogprobs:
    """Log-probabilities of prompt tokens [start, start + len(logprobs)); position 0 has none, never sent."""

    request_id: str
    start: int
    logprobs: tuple[TokenLogprobs, ...]


@dataclass(frozen=True, slots=True)
class Numbers:
    """An array of float32, row-major and little-endian."""

    shape: tuple[int, ...]
    data: bytes


@dataclass(frozen=True, slots=True)
class Pooled:
    """What was made of a prompt: [n] numbers, or [tokens, n] where each token's state counts by itself."""

    request_id: str
    numbers: Numbers


@dataclass(frozen=True, slots=True)
class Failure:
    """A request that failed alone. is_engines: not by its own fault, as where a logits processor raised, but because
    what was computed for it are no numbers.
    """

    request_id: str
    message: str
    is_engines: bool = False


@dataclass(frozen=True, slots=True)
class StepResult:
    """Answer to a StepPlan. Each request whose work samples is in `sampled`, in `failures` or in `unready`; each one
    that is to be pooled, in `pooled` or in `failures` once all of its prompt is computed.

    unready: those of which nobody knew yet what they may choose. Their last token is computed again in a later step.
    """

    step: int
    sampled: tuple[Sampled, ...]
    prompt_logprobs: tuple[PromptLogprobs, ...] = ()
    failures: tuple[Failure, ...] = ()
    pooled: tuple[Pooled, ...] = ()
    unready: tuple[str, ...] = ()
