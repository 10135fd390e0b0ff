"""Admission: which waiting requests join the running ones in a step."""

from __future__ import annotations

from collections.abc import Sequence

from noria.config.engine import SchedulerConfig
from noria.core.draft import Draft
from noria.core.kv import Hit, KVCacheManager
from noria.core.policies import Admission
from noria.core.queue import RequestQueue
from noria.core.request import Request

MAX_REFUSALS = 8  # requests too big for the free blocks that a step tries before it gives up
MAX_PASSED = 64  # times a request may be passed by younger, smaller ones while it waits for blocks
MAX_DOUBLINGS = 6


class Admitter:
    """Moves requests from waiting to running while slots, blocks and the policy allow.

    A request joins when the free blocks hold all its known tokens, what running prompts still need, and some
    head-room for growth. The head-room doubles with each preemption of the request, up to the worst case, so
    requests that keep evicting each other soon stop doing it.

    unready: ids of those that sat the last step out; what they would compute may be long in coming.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        policy: Admission,
        waiting: RequestQueue,
        running: RequestQueue,
        kv: KVCacheManager,
    ) -> None:
        self._max_num_seqs = config.max_num_seqs
        self._policy = policy
        self._waiting = waiting
        self._running = running
        self._kv = kv
        self.unready: tuple[str, ...] = ()

    def candidates(self) -> list[Request]:
        """Waiting requests that may join in this step as far as slots and policy are concerned, in order."""
        num_slots = self._max_num_seqs - len(self._running)
        return self._policy.candidates(self._waiting, self._running, num_slots)

    def admit(self, granted: Sequence[tuple[Request, int]], draft: Draft, now_s: float) -> list[Request]:
        """Admit what fits of (request, price it may come to) pairs, in order. One that does not fit may be
        passed, though not for ever. One that can share what is being computed in this step stays out until it is
        there.
        """
        admitted: list[Request] = []
        refused: list[Request] = []
        for request, price in granted:
            if draft.tokens_left == 0:
                break
            hit = self._kv.find(request)
            if self._policy.waits_for_prefix and self._comes_in_this_step(hit, draft):
                continue
            if self._fits(request, hit):
                self._join(request, hit, price, draft, now_s)
                admitted.append(request)
                for passed in refused:
                    passed.life.num_passed += 1
            else:
                refused.append(request)
                self._policy.refuse(request)
            if len(refused) > MAX_REFUSALS or (refused and refused[0].life.num_passed >= MAX_PASSED):
                break
        return admitted

    def _comes_in_this_step(self, hit: Hit, draft: Draft) -> bool:
        """Whether the block after the hit is computed in this step, by a request with the same beginning."""
        maker = self._running.get(hit.maker) if hit.maker is not None else None
        if maker is None or maker.id in self.unready:
            return False
        return maker.num_computed + draft.num_new(maker) >= hit.num_tokens + self._kv.block_size

    def _fits(self, request: Request, hit: Hit) -> bool:
        if not len(self._running):
            return True  # the pool holds at least one request of any acceptable length
        spare = self._kv.pool.num_free - self._kv.admission_cost(hit, request.num_known) - self._outstanding()
        headroom = (len(self._running) + 1) << min(request.life.num_preemptions, MAX_DOUBLINGS)
        return headroom <= spare or self._worst_case(request) <= spare

    def _outstanding(self) -> int:
        """Blocks that running requests need for tokens they know already."""
        blocks_for, held = self._kv.num_blocks_for, self._kv.num_held
        return sum([blocks_for(request.num_known) - held(request.id) for request in self._running])

    def _worst_case(self, request: Request) -> int:
        """Blocks that all may come to need once the request has joined."""
        return sum([self._growth(other) for other in self._running]) + self._growth(request)

    def _growth(self, request: Request) -> int:
        """Blocks that a request may come to need beyond those of its known tokens."""
        return self._kv.num_blocks_for(request.max_known) - self._kv.num_blocks_for(request.num_known)

    def _join(self, request: Request, hit: Hit, price: int, draft: Draft, now_s: float) -> None:
        moves = self._kv.admit(request, hit)
        num_new = draft.affordable(request, price)
        gained = self._kv.grow(request, num_new)
        assert gained is not None, f"request {request.id} was found to fit, and does not"
        draft.introduce(request, moves)
        draft.add(request, num_new, self._kv.table(request.id))
        self._waiting.remove(request)
        self._running.push(request)
        life = request.life
        life.num_passed = 0
        if life.first_scheduled_s is None:
            life.first_scheduled_s = now_s
            life.num_cached = request.num_computed
