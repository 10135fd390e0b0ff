"""The prompts of one HTTP request that are pooled, from submission to what was made of each."""

from __future__ import annotations

from dataclasses import dataclass

from noria.config.pooling import PoolingParams
from noria.core.outputs import Delta
from noria.core.plan import Numbers
from noria.engine.messages import PoolRequest
from noria.server.bridge import Bridge, Inbox
from noria.server.terms import PLAIN_TERMS, Terms
from noria.server.turn import FAILURES, failure_of


@dataclass(frozen=True, slots=True)
class PoolOrder:
    """What to read: prompts with the parameters of each."""

    request_id: str  # unique among the requests in the engine
    prompts: tuple[tuple[int, ...], ...]
    params: tuple[PoolingParams, ...]
    terms: Terms = PLAIN_TERMS

    @property
    def n(self) -> int:
        return 1


class PoolTurn:
    """Runs the prompts of one request. `close` it, however it ends: what still runs is cancelled."""

    def __init__(self, bridge: Bridge, order: PoolOrder) -> None:
        self.num_cached = 0
        self._bridge = bridge
        self._order = order
        self._inbox = Inbox()
        self._made: dict[str, Numbers | None] = {
            f"{order.request_id}-{i}": None for i in range(len(order.prompts))
        }

    async def begin(self) -> None:
        """Submit. Raises RequestError, OverloadError and EngineError as the engine does."""
        terms, timeout_s = self._order.terms, self._order.terms.timeout_s()
        requests = [
            PoolRequest(name, prompt, params, terms.priority, terms.cache_salt, terms.tenant, timeout_s)
            for name, prompt, params in zip(self._made, self._order.prompts, self._order.params, strict=True)
        ]
        await self._bridge.submit(requests, self._inbox)

    async def gather(self) -> list[Numbers]:
        """What was made of each prompt, in their order. Raises ApiError when one failed."""
        num_left = len(self._made)
        while num_left:
            for delta in await self._inbox.take():
                self._absorb(delta)
                num_left -= delta.finish is not None
        return [made for made in self._made.values() if made is not None]

    def close(self) -> None:
        self._bridge.cancel(list(self._made))

    def _absorb(self, delta: Delta) -> None:
        if delta.finish in FAILURES:
            raise failure_of(delta, self._order.terms.time_s)
        self.num_cached += delta.num_cached_tokens
        if delta.finish is not None:
            assert delta.pooled is not None, f"{delta.request_id} ended, and nothing was made of it"
            self._made[delta.request_id] = delta.pooled
