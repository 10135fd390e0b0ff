"""What the engine takes in: the bounds of its queue, deadlines that cannot be met, and the limits of tenants.

It is decided when a request is submitted, while a step computes, from counts alone: refusing costs nothing.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from noria.config.engine import EngineConfig
from noria.config.tenant import Tenant
from noria.core.outputs import Delta
from noria.engine.crowd import Charged, Crowd, most_charged
from noria.engine.forecast import Forecaster
from noria.engine.messages import EngineRequest, RequestRecord, StepRecord
from noria.engine.quota import Quota


@dataclass(slots=True)
class _Group:
    """The sequences of one user's request that have not ended."""

    tenant: Tenant
    num_open: int
    num_queued: int = 0
    queued_tokens: int = 0


@dataclass(slots=True)
class _Entry:
    """A sequence that has not ended. is_queued: it has had no token yet."""

    group: _Group
    num_prompt: int  # tokens that are read for it
    output: float  # tokens that were expected of it
    is_queued: bool = True


# Into how many parts the queue is cut where several tenants are known: none of them can fill it alone.
_FEWEST_SHARES = 2


class Intake:
    """Counts what is inside and refuses what is too much. Thread-safe; its times are the engine clock's.

    Listens to the engine's records, to foretell how long things take.
    on_crowd: told of every change of what is inside.
    """

    def __init__(self, config: EngineConfig, on_crowd: Callable[[Crowd], None] | None = None) -> None:
        self._config = config
        most = config.queue.max_num_queued_reqs
        self._share = None if most is None else max(1, most // _FEWEST_SHARES)  # of one tenant among several
        self._on_crowd = on_crowd
        self._forecaster = Forecaster(config.scheduler)
        self._lock = threading.Lock()  # guards everything below, and the forecaster
        self._entries: dict[str, _Entry] = {}
        self._num_queued = 0
        self._queued_tokens = 0
        self._charged = Charged(0, 0)
        self._expected_output = 0.0  # of all entries
        self._quotas: dict[str, Quota] = {}
        self._tell()

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._entries

    def check_room(self, requests: Sequence[EngineRequest], now_s: float) -> None:
        """Raise OverloadError if `take` would by now: before anything is made ready for them. Counts nothing."""
        with self._lock:
            self._admit(requests, now_s)

    def take(self, requests: Sequence[EngineRequest], now_s: float) -> float:
        """Count in the sequences of one user's request; returns when they must have begun, or would be computed for
        nothing. Raises OverloadError, and counts nothing, when they are too much for now. Ids are new.
        """
        if not requests:
            return math.inf
        with self._lock:
            tenant = requests[0].tenant
            crowd = self._crowd()
            begin_within_s = self._admit(requests, now_s)
            quota = self._quotas[tenant.name]
            quota.num_requests += 1
            quota.spend(tenant, crowd.work_of(requests).num_prompt_tokens, now_s)
            group = _Group(tenant, len(requests))
            for index, request in enumerate(requests):
                entry = _Entry(group, crowd.num_read(index, request), crowd.output_of(request))
                self._enter(request.request_id, entry)
            self._tell()
            return now_s + begin_within_s

    def _admit(self, requests: Sequence[EngineRequest], now_s: float) -> float:
        """Within what time they must begin. Raises OverloadError."""
        tenant = requests[0].tenant
        quota = self._quotas.setdefault(tenant.name, Quota())  # known from now on, taken or not
        crowd = self._crowd()
        work = crowd.work_of(requests)
        # First what holds for everybody: it may have been decided before the engine, which knows no quotas.
        begin_within_s = crowd.admit(work, requests[0].timeout_s)
        if self._share is not None and len(self._quotas) > 1:
            quota.check_share(work.num_seqs, self._share)
        quota.check(tenant, work.num_prompt_tokens, now_s)
        return begin_within_s

    def crowd(self) -> Crowd:
        """What a request would meet now."""
        with self._lock:
            return self._crowd()

    def note(self, deltas: Sequence[Delta], now_s: float) -> None:
        """Follow the news of a step."""
        with self._lock:
            for delta in deltas:
                entry = self._entries.get(delta.request_id)
                if entry is None:
                    continue
                tenant = entry.group.tenant
                if delta.token_ids and tenant.tokens_per_minute is not None:
                    self._quotas[tenant.name].spend(tenant, len(delta.token_ids), now_s)
                if entry.is_queued and (delta.token_ids or delta.finish is not None):
                    self._leave_queue(entry)
                if delta.finish is not None:
                    self._leave(delta.request_id, entry)
            self._tell()

    def on_step(self, record: StepRecord) -> None:
        with self._lock:
            self._forecaster.learn_step(record)

    def on_request(self, record: RequestRecord) -> None:
        with self._lock:
            self._forecaster.learn_request(record)

    def check(self) -> None:
        """Assert that every count is that of the sequences inside."""
        entries = list(self._entries.values())
        queued = [entry for entry in entries if entry.is_queued]
        assert self._num_queued == len(queued), f"{self._num_queued} counted as queued, {len(queued)} are"
        tokens = sum(entry.num_prompt for entry in queued)
        assert self._queued_tokens == tokens, f"{self._queued_tokens} queued tokens counted, {tokens} there"
        assert entries or self._expected_output == 0, f"{self._expected_output} tokens expected of nobody"
        groups = {id(entry.group): entry.group for entry in entries}.values()
        charges = [self._charge_of(group) for group in groups]
        charged = Charged(sum(one.num_seqs for one in charges), sum(one.num_tokens for one in charges))
        assert self._charged == charged, f"{self._charged} charged, {charged} queued"
        for name, quota in self._quotas.items():
            num_queued = sum(entry.group.tenant.name == name for entry in queued)
            assert quota.num_queued == num_queued, (
                f"{quota.num_queued} of {name!r} counted, {num_queued} queued"
            )
            num_open = sum(group.tenant.name == name for group in groups)
            assert quota.num_requests == num_open, (
                f"{quota.num_requests} of {name!r} counted, {num_open} open"
            )

    def _crowd(self) -> Crowd:
        return Crowd(
            self._num_queued,
            self._queued_tokens,
            len(self._entries),
            self._expected_output,
            self._config.queue,
            self._config.scheduler.max_model_len,
            self._config.cache.enable_prefix_caching,
            self._forecaster.forecast(),
            self._charged,
        )

    def _tell(self) -> None:
        if self._on_crowd is not None:
            self._on_crowd(self._crowd())

    def _enter(self, request_id: str, entry: _Entry) -> None:
        self._entries[request_id] = entry
        self._queue(entry, 1)
        self._expected_output += entry.output

    def _leave_queue(self, entry: _Entry) -> None:
        entry.is_queued = False
        self._queue(entry, -1)

    def _queue(self, entry: _Entry, change: int) -> None:
        """change: 1 for an entry that comes, -1 for one that has its first token, or ends before."""
        group, num_tokens = entry.group, change * entry.num_prompt
        before = self._charge_of(group)
        group.num_queued += change
        group.queued_tokens += num_tokens
        self._num_queued += change
        self._queued_tokens += num_tokens
        self._quotas[group.tenant.name].num_queued += change
        after, total = self._charge_of(group), self._charged
        self._charged = Charged(
            total.num_seqs + after.num_seqs - before.num_seqs,
            total.num_tokens + after.num_tokens - before.num_tokens,
        )

    def _charge_of(self, group: _Group) -> Charged:
        queue = self._config.queue
        return Charged(
            int(min(group.num_queued, most_charged(queue.max_num_queued_reqs))),
            int(min(group.queued_tokens, most_charged(queue.max_num_queued_tokens))),
        )

    def _leave(self, request_id: str, entry: _Entry) -> None:
        del self._entries[request_id]
        self._expected_output -= entry.output
        if not self._entries:
            self._expected_output = 0.0  # what rounding left
        group = entry.group
        group.num_open -= 1
        if group.num_open == 0:
            self._quotas[group.tenant.name].num_requests -= 1
