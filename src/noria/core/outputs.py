"""What leaves the engine: pieces of a request's answer, in token ids."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from noria.core.plan import Numbers, TokenLogprobs


class FinishReason(str, Enum):
    STOP = "stop"  # an end-of-sequence or stop token was sampled, or the prompt is pooled
    LENGTH = "length"  # max_tokens or the context's end
    ABORT = "abort"  # cancelled
    TIMEOUT = "timeout"  # its deadline passed
    ERROR = "error"  # failed by its own fault
    FAULT = "fault"  # failed by the engine's, which goes on
    LOST = "lost"  # the engine died under it


@dataclass(slots=True)
class Delta:
    """News of one request after a step. The one with a finish reason is its last. Made as `Work` is.

    token_ids: newly sampled tokens, a stop token included.
    prompt_logprobs: for prompt positions from 1 on, in order, each sent once.
    """

    request_id: str
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] = ()
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()
    finish: FinishReason | None = None
    stop_token_id: int | None = None  # the token that ended it, when finish is STOP
    num_cached_tokens: int = 0  # prompt tokens that came from the prefix cache
    pooled: Numbers | None = None  # what was made of the prompt, when nothing is generated
    error: str | None = None  # what went wrong, in words for the user: when finish is ERROR, FAULT or LOST
