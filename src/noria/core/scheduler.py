"""The scheduler: which tokens of which requests are computed next, and what their results change.

It knows no phases. A request has known and computed tokens, and a step closes part of the gap; prompts in
chunks, prefix hits, resumed requests and plain decoding are the same subtraction.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from operator import attrgetter

from noria.config.engine import SchedulerConfig
from noria.core.acceptance import max_known_tokens
from noria.core.admission import Admitter
from noria.core.draft import Draft
from noria.core.kv import KVCacheManager
from noria.core.outputs import Delta, FinishReason
from noria.core.plan import Failure, PromptLogprobs, Sampled, StepPlan, StepResult, TokenLogprobs
from noria.core.policies import Policies
from noria.core.queue import RequestQueue
from noria.core.request import Params, Request
from noria.core.tally import StepTally
from noria.sampling.params import SamplingParams


class Scheduler:
    """Plans steps and commits their results. Single-threaded; time comes in as an argument.

    eos_token_ids: end an output unless its params say ignore_eos. num_accepted: requests so far.
    """

    def __init__(
        self, config: SchedulerConfig, policies: Policies, kv: KVCacheManager, eos_token_ids: Iterable[int]
    ) -> None:
        self.kv = kv
        self.waiting = RequestQueue()
        self.running = RequestQueue()
        self.tally = StepTally()
        self._config = config
        self._policies = policies
        self._admitter = Admitter(config, policies.admission, self.waiting, self.running, kv)
        self._eos_token_ids = frozenset(eos_token_ids)
        self._finished: list[tuple[Request, FinishReason]] = []  # since they were last taken
        self._departures: list[str] = []  # requests the runner knows and must forget
        self._num_steps = 0
        self.num_accepted = 0

    @property
    def has_work(self) -> bool:
        return bool(len(self.waiting) or len(self.running) or self._departures)

    def add(self, request: Request, now_s: float) -> None:
        """Queue a request. Raises RequestError if it can never be served."""
        request.max_known = max_known_tokens(request.num_prompt, request.params, self._config.max_model_len)
        request.end_token_ids = self._end_token_ids(request.params)
        request.life.arrival_s = now_s
        request.place = self._policies.order.place(request, self.num_accepted)
        self.waiting.push(request)
        self.tally.arrived_ids.append(request.id)
        self.num_accepted += 1

    def cancel(self, request_id: str, finish: FinishReason) -> Delta | None:
        """End a request in whatever state it is and free its blocks; None if it is not here."""
        request = self.running.get(request_id)
        if request is not None:
            self._leave(request, finish)
        else:
            request = self.waiting.get(request_id)
            if request is None:
                return None
            self.waiting.remove(request)
            self._end(request, finish)
        return Delta(request_id, finish=finish, num_cached_tokens=request.life.num_cached)

    def has_begun(self, request_id: str) -> bool:
        """Whether a request that is here has been in a step."""
        request = self.waiting.get(request_id)
        return request is None or request.life.first_scheduled_s is not None

    def plan(self, now_s: float) -> StepPlan:
        """Compose the next step. Empty when there is nothing to do."""
        draft = Draft(self._config.max_num_batched_tokens, self._policies.prices)
        self._plan_decodes(draft)
        draft.reserve_for_prompts()
        self._share_out(draft, now_s)
        self._spend_rest(draft)
        plan = draft.freeze(self._num_steps, self._departures, now_s)
        assert plan.work or not (len(self.waiting) or len(self.running)), (
            f"nothing planned with {len(self.waiting)} waiting, {len(self.running)} running, "
            f"{self.kv.pool.num_free} of {self.kv.pool.num_blocks} blocks free"
        )
        self._departures = []
        self._num_steps += 1
        return plan

    def commit(self, plan: StepPlan, result: StepResult, now_s: float) -> list[Delta]:
        """Apply a step's results; returns the news, at most one delta a request."""
        assert result.step == plan.step, f"result of step {result.step} for plan {plan.step}"
        self._policies.prices.done(now_s)
        results = _Results(result)
        deltas: list[Delta] = []
        count_computed, failures, block_size = self.tally.count_computed, results.failures, self.kv.block_size
        unready = result.unready
        self.tally.unready_ids += unready
        self._admitter.unready = unready
        for work in plan.work:
            request = self.running.get(work.request_id)
            assert request is not None, f"work of request {work.request_id}, which does not run"
            count_computed(request, work.num_new)
            request.num_computed += work.num_new
            if work.request_id in unready:
                request.num_computed -= 1
            if work.num_new > 1 or not request.num_computed % block_size:  # else no block became full
                self.kv.register(request)
            if work.request_id in failures:
                deltas.append(self._fail(request, failures[work.request_id]))
            elif work.samples and work.request_id not in unready:
                deltas.append(self._append(request, results, now_s))
            else:
                deltas += self._accept_read(request, results)
        return deltas

    def take_tally(self) -> StepTally:
        """The counts since the last call; counting starts anew."""
        tally, self.tally = self.tally, StepTally()
        return tally

    def take_finished(self) -> list[tuple[Request, FinishReason]]:
        """The requests that have ended since the last call, and how."""
        finished, self._finished = self._finished, []
        return finished

    def check(self) -> None:
        """Assert every invariant that ties requests, queues and blocks together."""
        self.kv.check()
        self.waiting.check()
        self.running.check()
        assert len(self.running) <= self._config.max_num_seqs, f"{len(self.running)} requests run"
        assert self.kv.holders() == {request.id for request in self.running}, (
            "blocks held by other than running"
        )
        for request in self.running:
            held = self.kv.num_held(request.id)
            assert request.num_computed < request.num_known <= request.max_known, (
                f"{request.id} is past its end"
            )
            assert held >= self.kv.num_blocks_for(request.num_computed), (
                f"{request.id} computed without blocks"
            )
            assert held <= self.kv.num_blocks_for(request.num_known), (
                f"{request.id} holds more than it can use"
            )
        for request in self.waiting:
            assert request.num_computed == 0, (
                f"{request.id} waits with {request.num_computed} computed tokens"
            )

    def _plan_decodes(self, draft: Draft) -> None:
        """Every running request that lacks one token, oldest first."""
        has_slot = self.kv.has_slot
        for request in self.running:
            if len(request.token_ids) - request.num_computed != 1:
                continue
            if draft.tokens_left and has_slot(request):
                draft.add(request, 1, ())
            elif request.id in self.running:  # else it was preempted
                self._extend(request, 1, draft)

    def _share_out(self, draft: Draft, now_s: float) -> None:
        """Split what the decodes left between prompts that run and requests that wait, oldest first."""
        if draft.is_spent:
            return
        # Where memory is short, who was just preempted comes back later.
        closed = self.tally.num_preemptions > 0 or not draft.takes_newcomers
        claims = [request for request in self.running if len(request.token_ids) - request.num_computed > 1]
        claims += [] if closed else self._admitter.candidates()
        if not claims:
            return
        claims.sort(key=attrgetter("place"))
        shares = self._policies.split.split(draft.price_left, [draft.need(request) for request in claims])
        granted = [(request, share) for request, share in zip(claims, shares, strict=True) if share]
        for request, share in granted:
            if self.running.get(request.id) is request:
                self._extend(request, draft.affordable(request, share), draft)
        if self.tally.num_preemptions == 0:
            waiting = [(request, share) for request, share in granted if request.id in self.waiting]
            for request in self._admitter.admit(waiting, draft, now_s):
                self._policies.order.began(request)
                if self.kv.is_shareable(request):
                    self.tally.count_lookup(request)

    def _extend(self, request: Request, num_tokens: int, draft: Draft) -> None:
        """Plan up to num_tokens more of a running request; younger ones yield their blocks to it if they must."""
        while draft.tokens_left and not self._extend_freely(request, num_tokens, draft):
            victim = self.running.last()
            assert len(self.running) > 1, (
                f"request {request.id} alone does not fit: {request.num_known} tokens, "
                f"{self.kv.pool.num_blocks} blocks of {self.kv.block_size}"
            )
            self._preempt(victim, draft)
            if victim is request:
                return

    def _extend_freely(self, request: Request, num_tokens: int, draft: Draft) -> bool:
        """Plan as many of num_tokens more as budget and free blocks allow; whether that is any."""
        planned = draft.num_new(request)
        num_new = min(num_tokens, draft.tokens_left, self.kv.room(request) - planned)
        if num_new <= 0:
            return False
        gained = self.kv.grow(request, planned + num_new)
        assert gained is not None, f"no blocks for {num_new} tokens within the room of request {request.id}"
        draft.add(request, num_new, gained)
        return True

    def _spend_rest(self, draft: Draft) -> None:
        """What was granted to requests that could not be admitted, or had a prefix hit, goes to prompts that
        run, oldest first.
        """
        for request in () if draft.is_spent else self.running:
            if len(request.token_ids) - request.num_computed == 1:
                continue  # a decode, or the rest of a prompt: it is in the step, or nothing was left
            if request.num_pending > draft.num_new(request) and not draft.is_spent:
                self._extend_freely(request, draft.affordable(request, draft.price_left), draft)
        if draft.is_empty and len(self.running):
            (oldest,) = self.running.first(1)
            self._extend(oldest, draft.affordable(oldest, draft.price_left), draft)

    def _preempt(self, request: Request, draft: Draft) -> None:
        draft.drop(request)
        self.running.remove(request)
        self.kv.release(request)
        self.waiting.push(request)
        self._departures.append(request.id)
        request.life.num_preemptions += 1
        self.tally.preempted_ids.append(request.id)

    def _accept_read(self, request: Request, results: _Results) -> list[Delta]:
        """Of work that sampled nothing."""
        fresh = results.fresh_logprobs(request)
        if request.num_computed == request.max_known:  # nothing was asked for beyond the prompt
            pooled = results.pooled.get(request.id)
            delta = Delta(
                request.id,
                prompt_logprobs=fresh,
                pooled=pooled,
                num_cached_tokens=request.life.num_cached,
            )
            return [
                self._finish(request, delta, FinishReason.LENGTH if pooled is None else FinishReason.STOP)
            ]
        return [Delta(request.id, prompt_logprobs=fresh)] if fresh else []

    def _append(self, request: Request, results: _Results, now_s: float) -> Delta:
        sampled = results.sampled.get(request.id)
        assert sampled is not None, f"request {request.id} was to sample and did not"
        kept, stop_token_id = self._cut(request, sampled)
        request.token_ids.extend(kept)
        self.tally.count_sampled(request, len(kept), now_s)
        finish: FinishReason | None = None
        if stop_token_id is not None:
            finish = FinishReason.STOP
        elif len(request.token_ids) >= request.max_known:
            finish = FinishReason.LENGTH
        if finish is not None:
            self._leave(request, finish)
        return Delta(
            request.id,
            kept,
            sampled.logprobs[: len(kept)],
            results.fresh_logprobs(request) if results.logprobs else (),
            finish,
            stop_token_id,
            request.life.num_cached,
        )

    def _cut(self, request: Request, sampled: Sampled) -> tuple[tuple[int, ...], int | None]:
        """The tokens up to the request's end, and the stop token that ends it, if one does."""
        num_known = len(request.token_ids)
        token_ids = sampled.token_ids[: request.max_known - num_known]
        if not request.end_token_ids.isdisjoint(token_ids):  # else, as nearly always, none of them ends it
            params = request.params
            assert isinstance(params, SamplingParams), f"request {request.id} sampled, with {params}"
            first_stop = params.min_tokens - (num_known - request.num_prompt)  # earlier tokens cannot end it
            for index, token_id in enumerate(token_ids):
                if index >= first_stop and token_id in request.end_token_ids:
                    return token_ids[: index + 1], token_id
        if sampled.is_last and len(token_ids) == len(sampled.token_ids):
            return token_ids, token_ids[-1]
        return token_ids, None

    def _end_token_ids(self, params: Params) -> frozenset[int]:
        """Any of them ends an output."""
        if not isinstance(params, SamplingParams):
            return frozenset()
        return frozenset(params.stop_token_ids) | (frozenset() if params.ignore_eos else self._eos_token_ids)

    def _fail(self, request: Request, failure: Failure) -> Delta:
        delta = Delta(request.id, error=failure.message, num_cached_tokens=request.life.num_cached)
        return self._finish(request, delta, FinishReason.FAULT if failure.is_engines else FinishReason.ERROR)

    def _finish(self, request: Request, delta: Delta, reason: FinishReason) -> Delta:
        self._leave(request, reason)
        return replace(delta, finish=reason)

    def _leave(self, request: Request, reason: FinishReason) -> None:
        self.running.remove(request)
        self.kv.release(request)
        self._departures.append(request.id)
        self._end(request, reason)

    def _end(self, request: Request, reason: FinishReason) -> None:
        self._policies.order.ended(request)
        self._finished.append((request, reason))


class _Results:
    """A step's results, by request."""

    def __init__(self, result: StepResult) -> None:
        self.sampled = {entry.request_id: entry for entry in result.sampled}
        self.logprobs = {entry.request_id: entry for entry in result.prompt_logprobs}
        self.failures = {entry.request_id: entry for entry in result.failures}
        self.pooled = {entry.request_id: entry.numbers for entry in result.pooled}

    def fresh_logprobs(self, request: Request) -> tuple[TokenLogprobs, ...]:
        """Of the request's prompt, those that were not sent yet."""
        news = self.logprobs.get(request.id)
        return () if news is None else _unsent(request, news)


def _unsent(request: Request, news: PromptLogprobs) -> tuple[TokenLogprobs, ...]:
    """The prompt log-probabilities that were not sent yet: a resumed request computes old ones again."""
    sent = request.life.num_prompt_logprobs_sent
    fresh = news.logprobs[max(0, sent + 1 - news.start) :]  # position 0 has none: entry i is position i + 1
    request.life.num_prompt_logprobs_sent = max(sent, news.start - 1 + len(news.logprobs))
    return fresh
