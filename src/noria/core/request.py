"""One sequence inside the engine: known tokens, computed tokens, and what is left to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from noria.config.pooling import PoolingParams
from noria.config.tenant import ANYBODY, Tenant
from noria.core.prefix import HashChain
from noria.sampling.params import SamplingParams

# What is wanted of a sequence. The scheduler knows of either no more than n, max_tokens and needs_every_position.
Params = SamplingParams | PoolingParams

# In every order of the scheduler, fixed from acceptance on; lower goes first.
Place = tuple[float, int]


@dataclass(frozen=True, slots=True)
class Claim:
    """What a request's place may follow from, besides when it came. priority: lower goes first."""

    tenant: Tenant = ANYBODY
    priority: int = 0


PLAIN_CLAIM = Claim()


class Request:
    """A sequence from acceptance to its last token.

    # token_ids: [0, num_prompt) is the prompt, the rest was sampled
    # [0, num_computed) has KV; [num_computed, num_known) has none yet
    """

    __slots__ = (
        "chain",
        "claim",
        "end_token_ids",
        "id",
        "life",
        "max_known",
        "num_computed",
        "num_prompt",
        "params",
        "place",
        "seed",
        "token_ids",
    )

    def __init__(
        self,
        request_id: str,
        prompt_token_ids: Sequence[int],
        params: Params,
        seed: int,
        chain: HashChain,
        claim: Claim = PLAIN_CLAIM,
    ) -> None:
        self.id = request_id
        self.token_ids = list(prompt_token_ids)
        self.num_prompt = len(self.token_ids)
        self.num_computed = 0
        self.params = params
        self.seed = seed
        self.chain = chain
        self.claim = claim
        # Set when the scheduler accepts it.
        self.place: Place = (0.0, -1)
        self.end_token_ids: frozenset[int] = frozenset()  # any of them, sampled, is the last
        self.max_known = 0  # prompt and output together end here
        self.life = Life()

    @property
    def num_known(self) -> int:
        return len(self.token_ids)

    @property
    def num_pending(self) -> int:
        """Known tokens that have no KV yet."""
        return len(self.token_ids) - self.num_computed

    @property
    def num_output(self) -> int:
        return len(self.token_ids) - self.num_prompt


class Life:
    """What happened to a request so far, for records and metrics. Instants are in seconds of the engine clock."""

    __slots__ = (
        "arrival_s",
        "first_scheduled_s",
        "first_token_s",
        "last_token_s",
        "num_cached",
        "num_computed_once",
        "num_passed",
        "num_preemptions",
        "num_prompt_logprobs_sent",
    )

    def __init__(self) -> None:
        self.arrival_s = 0.0  # when the scheduler accepted it
        self.first_scheduled_s: float | None = None
        self.first_token_s: float | None = None
        self.last_token_s: float | None = None
        self.num_cached = 0  # prompt tokens found in the prefix cache at first admission
        self.num_computed_once = 0  # the furthest num_computed ever was: below it, work is repeated
        self.num_passed = 0  # admissions of younger requests while this one waited for blocks
        self.num_preemptions = 0
        self.num_prompt_logprobs_sent = 0
