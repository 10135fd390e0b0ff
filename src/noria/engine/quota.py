"""What one tenant has taken of its limits."""

from __future__ import annotations

from noria.config.errors import OverloadError, Refusal, RequestError
from noria.config.tenant import Tenant
from noria.engine.retry import retry_after

_CONCURRENCY_RETRY_S = 1  # nobody knows when one of the tenant's own requests will end


class Quota:
    """Counts a tenant's requests inside, and its tokens in a bucket that fills at the rate it may spend.

    The bucket holds a minute's worth. A prompt is paid for when it comes, outputs as they are made, if need be on
    credit: what comes next waits until that is paid back. Time is in seconds of the engine clock.
    """

    def __init__(self) -> None:
        self.num_requests = 0
        self.num_queued = 0  # sequences without a first token
        self._level: float | None = None  # tokens; None: full
        self._at_s = 0.0  # when the level was true

    def check(self, tenant: Tenant, num_prompt_tokens: int, now_s: float) -> None:
        """Raises OverloadError when one more request with such a prompt is too much now."""
        if tenant.max_concurrent is not None and self.num_requests >= tenant.max_concurrent:
            raise OverloadError(
                f"This API key has {self.num_requests} requests running; it may have {tenant.max_concurrent} at once.",
                Refusal.KEY_REQUESTS,
                _CONCURRENCY_RETRY_S,
            )
        per_minute = tenant.tokens_per_minute
        if per_minute is None:
            return
        lacking = min(num_prompt_tokens, per_minute) - self._refilled(per_minute, now_s)
        if lacking > 0:
            raise OverloadError(
                f"This API key may take {per_minute} tokens a minute and has taken them.",
                Refusal.KEY_TOKENS,
                retry_after(lacking * 60 / per_minute),
            )

    def check_share(self, num_seqs: int, share: int) -> None:
        """share: how many sequences of one tenant may be without a first token where there are others.

        Raises RequestError for more at once than that, OverloadError for more than that now.
        """
        if num_seqs > share:
            raise RequestError(
                f"n times the number of prompts is {num_seqs}; where several API keys share the server, one may have "
                f"{share} waiting, half of what it queues",
                "n",
            )
        if self.num_queued + num_seqs > share:
            raise OverloadError(
                f"{self.num_queued} requests of this API key wait for their first token; while others use the server "
                f"too, it may have {share}.",
                Refusal.KEY_REQUESTS,
                _CONCURRENCY_RETRY_S,
            )

    def spend(self, tenant: Tenant, num_tokens: int, now_s: float) -> None:
        per_minute = tenant.tokens_per_minute
        self._level = None if per_minute is None else self._refilled(per_minute, now_s) - num_tokens
        self._at_s = now_s

    def _refilled(self, per_minute: int, now_s: float) -> float:
        if self._level is None:
            return float(per_minute)
        return min(float(per_minute), self._level + (now_s - self._at_s) * per_minute / 60)
