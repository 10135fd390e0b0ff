"""What the engine takes in: the bounds of its queue, deadlines that cannot be met, and the limits of tenants.

It is decided when a request is submitted, while a step computes, from counts alone: refusing costs nothing.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from noria.config.engine import EngineConfig
from noria.config.errors import OverloadError, Refusal
from noria.config.tenant import Tenant
from noria.core.acceptance import max_known_tokens
from noria.core.outputs import Delta
from noria.engine.forecast import Ahead, Forecaster
from noria.engine.messages import EngineRequest, RequestRecord, StepRecord
from noria.engine.quota import Quota
from noria.engine.retry import retry_after

# Of a request's time, what may be foretold to pass before it ends. What is taken at the edge and then comes late was
# computed for nothing, and forecasts are not exact.
USABLE_TIME = 0.75
# Of the time that its own work is foretold to take, what must be left when its turn comes.
NEEDED_TIME = 1.1


@dataclass(slots=True)
class _Group:
    """The sequences of one user's request that have not ended."""

    tenant: Tenant
    num_open: int


@dataclass(slots=True)
class _Entry:
    """A sequence that has not ended. is_queued: it has had no token yet."""

    group: _Group
    num_prompt: int  # tokens that are read for it
    output: float  # tokens that were expected of it
    is_queued: bool = True


class Intake:
    """Counts what is inside and refuses what is too much. Thread-safe; its times are the engine clock's.

    Listens to the engine's records, to foretell how long things take.
    """

    def __init__(self, config: EngineConfig) -> None:
        self._limits = config.queue
        self._max_model_len = config.scheduler.max_model_len
        self._shares_prompts = config.cache.enable_prefix_caching
        self._forecaster = Forecaster(config.scheduler)
        self._lock = threading.Lock()  # guards everything below, and the forecaster
        self._entries: dict[str, _Entry] = {}
        self._num_queued = 0
        self._queued_tokens = 0
        self._expected_output = 0.0  # of all entries
        self._quotas: dict[str, Quota] = {}

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._entries

    def take(self, requests: Sequence[EngineRequest], now_s: float) -> float:
        """Count in the sequences of one user's request; returns when they must have begun, or would be computed for
        nothing. Raises OverloadError, and counts nothing, when they are too much for now. Ids are new.
        """
        if not requests:
            return math.inf
        with self._lock:
            tenant = requests[0].tenant
            num_tokens = sum(self._num_read(index, request) for index, request in enumerate(requests))
            quota = self._quotas.setdefault(tenant.name, Quota())
            quota.check(tenant, num_tokens, now_s)
            self._check_queue(len(requests), num_tokens)
            begin_within_s = self._check_deadline(requests, num_tokens)
            quota.num_requests += 1
            quota.spend(tenant, num_tokens, now_s)
            group = _Group(tenant, len(requests))
            for index, request in enumerate(requests):
                self._enter(request, _Entry(group, self._num_read(index, request), self._output_of(request)))
            return now_s + begin_within_s

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
        for name, quota in self._quotas.items():
            num_open = sum(group.tenant.name == name for group in groups)
            assert quota.num_requests == num_open, (
                f"{quota.num_requests} of {name!r} counted, {num_open} open"
            )

    def _num_read(self, index: int, request: EngineRequest) -> int:
        """Prompt tokens to be read for the sequence of that index: the copies of a prompt, n in a row, share them."""
        is_copy = self._shares_prompts and index % request.params.n
        return 0 if is_copy else len(request.prompt_token_ids)

    def _check_queue(self, num_requests: int, num_tokens: int) -> None:
        """Where nothing is queued anything may come: what is larger than the queue would otherwise never be served."""
        if not self._num_queued:
            return
        most_requests, most_tokens = self._limits.max_num_queued_reqs, self._limits.max_num_queued_tokens
        excess = excess_tokens = 0
        if most_requests is not None:
            excess = self._num_queued + num_requests - most_requests
        if most_tokens is not None:
            excess_tokens = self._queued_tokens + num_tokens - most_tokens
        if excess <= 0 and excess_tokens <= 0:
            return
        room_s = self._forecaster.room_s(
            min(max(0, excess), self._num_queued),
            min(max(0, excess_tokens), self._queued_tokens),
            self._ahead(),
        )
        if excess > 0:
            text = (
                f"{self._num_queued} requests wait for their first token; this server queues {most_requests}."
            )
            raise OverloadError(text, Refusal.QUEUED_REQUESTS, retry_after(room_s))
        text = f"{self._queued_tokens} prompt tokens wait to be read; this server queues {most_tokens}."
        raise OverloadError(text, Refusal.QUEUED_TOKENS, retry_after(room_s))

    def _check_deadline(self, requests: Sequence[EngineRequest], num_prompt_tokens: int) -> float:
        """Refuse a request that the queue makes late: what is ahead and its own work are foretold to take more than
        USABLE_TIME of its time, and its own work alone is not. One that asks for too much in too little time is let
        in, for what it gets of its answer, unless its time is foretold to be over before it begins.

        Returns within how many seconds it must begin.
        """
        timeout_s = requests[0].timeout_s
        if timeout_s is None:
            return math.inf
        output = max(self._output_of(request) for request in requests)
        outlook = self._forecaster.outlook(self._ahead(), len(requests), num_prompt_tokens, output)
        if outlook is None:
            return timeout_s
        usable_s = USABLE_TIME * timeout_s
        own_s = outlook.own_s if outlook.own_s <= usable_s else 0.0
        needed_s = outlook.wait_s + own_s
        if needed_s <= usable_s:
            return timeout_s - NEEDED_TIME * own_s
        text = (
            f"This request has {timeout_s:.3g} s; about {outlook.wait_s:.3g} s would pass before its turn came and "
            f"{outlook.own_s:.3g} s until its answer was whole."
        )
        raise OverloadError(text, Refusal.DEADLINE, retry_after(needed_s - usable_s))

    def _ahead(self) -> Ahead:
        num_live = len(self._entries)
        mean_output = self._expected_output / num_live if num_live else 0.0
        return Ahead(num_live, self._queued_tokens, mean_output)

    def _output_of(self, request: EngineRequest) -> float:
        num_prompt = len(request.prompt_token_ids)
        most = max_known_tokens(num_prompt, request.params, self._max_model_len) - num_prompt
        return self._forecaster.expected_output(request.params, most)

    def _enter(self, request: EngineRequest, entry: _Entry) -> None:
        self._entries[request.request_id] = entry
        self._num_queued += 1
        self._queued_tokens += entry.num_prompt
        self._expected_output += entry.output

    def _leave_queue(self, entry: _Entry) -> None:
        entry.is_queued = False
        self._num_queued -= 1
        self._queued_tokens -= entry.num_prompt

    def _leave(self, request_id: str, entry: _Entry) -> None:
        del self._entries[request_id]
        self._expected_output -= entry.output
        if not self._entries:
            self._expected_output = 0.0  # what rounding left
        group = entry.group
        group.num_open -= 1
        if group.num_open == 0:
            self._quotas[group.tenant.name].num_requests -= 1
