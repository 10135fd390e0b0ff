"""An engine in this process as a target: what is measured is the engine alone, without HTTP."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any

from noria.bench.outcome import Status
from noria.bench.pieces import Planned
from noria.bench.steps import StepLog
from noria.bench.target import Answer, OnAnswer, Sample, TargetFacts
from noria.bench.texts import Count
from noria.bench.vocabulary import Encode, Writer, vocabulary_of
from noria.config.errors import NoriaError, OverloadError
from noria.core.outputs import Delta, FinishReason
from noria.engine.client import EngineClient
from noria.engine.messages import GenerateRequest, RequestRecord
from noria.sampling.params import SamplingParams

Decode = Callable[[Sequence[int]], str]

_ENDS = {
    FinishReason.STOP: Status.OK,
    FinishReason.LENGTH: Status.OK,
    FinishReason.TIMEOUT: Status.TIMEOUT,
    FinishReason.ABORT: Status.CUT,
}


class EngineTarget:
    """client: of a running engine. encode: without what a tokenizer adds. loop: that it lives on. decode: for
    answers whose texts are wanted."""

    def __init__(
        self,
        client: EngineClient,
        facts: TargetFacts,
        encode: Encode,
        seed: int,
        loop: asyncio.AbstractEventLoop,
        decode: Decode | None = None,
        ignore_eos: bool = True,
    ) -> None:
        self.facts = facts
        self.count_tokens: Count | None = lambda text: len(encode(text))
        self._client = client
        self._loop = loop
        self._encode = encode
        self._writer = Writer(vocabulary_of(encode), seed)
        self._decode = decode
        self._ignore_eos = ignore_eos
        self._numbers = itertools.count()
        self._log = StepLog()
        client.recorder.add_listener(self._log)

    def send(self, planned: Planned, on_answer: OnAnswer) -> EngineFlight:
        ids = self._ids(planned)
        flight = EngineFlight(f"bench-{next(self._numbers)}", len(ids), self, on_answer)
        params = SamplingParams(temperature=0, max_tokens=planned.num_output, ignore_eos=self._ignore_eos)
        request = GenerateRequest(flight.request_id, ids, params, seed=0)
        flight.sent_s = time.perf_counter()
        verdict = self._client.submit([request], flight.take)
        verdict.add_done_callback(lambda done: flight.judged(done.exception()))
        return flight

    def cancel(self, request_id: str) -> None:
        self._client.cancel([request_id])

    def call_soon(self, flight: EngineFlight) -> None:
        """From any thread."""
        self._loop.call_soon_threadsafe(flight.report)

    def text_of(self, token_ids: Sequence[int]) -> str:
        """Empty where nobody wants texts."""
        return "" if self._decode is None else self._decode(token_ids)

    def record_of(self, request_id: str) -> RequestRecord | None:
        """The engine's own record of a request that has ended, once."""
        return self._log.take_request(request_id)

    async def sample(self) -> Sample:
        stats, totals = self._client.stats(), self._log.totals
        return Sample(
            time_s=time.perf_counter(),
            kv_util=stats.num_blocks_used / max(1, stats.num_blocks),
            kv_cached=stats.num_blocks_cached / max(1, stats.num_blocks),
            num_running=stats.num_running,
            num_waiting=stats.num_waiting,
            preemptions=totals["preemptions"],
            prefix_queries=totals["prefix_queries"],
            prefix_hits=totals["prefix_hits"],
            computed_tokens=totals["computed_tokens"],
            recomputed_tokens=totals["recomputed_tokens"],
        )

    def steps(self) -> list[dict[str, Any]]:
        return self._log.rows

    def close(self) -> None:
        self._client.shutdown()

    def _ids(self, planned: Planned) -> tuple[int, ...]:
        if planned.text is not None:
            return tuple(self._encode(planned.text))
        return tuple(self._writer.ids(planned.pieces).tolist())


class EngineFlight:
    """One request inside. `take` runs on the engine's thread, everything else on the loop's."""

    def __init__(self, request_id: str, num_prompt: int, target: EngineTarget, on_answer: OnAnswer) -> None:
        self.request_id = request_id
        self.sent_s = 0.0
        self._num_prompt = num_prompt
        self._target = target
        self._on_answer = on_answer
        self._chunks: list[tuple[float, int]] = []
        self._ids: list[int] = []
        self._last: Delta | None = None
        self._end_s = 0.0
        self._early: Status | None = None
        self._refusal: BaseException | None = None

    @property
    def has_token(self) -> bool:
        return bool(self._chunks)

    def take(self, deltas: Sequence[Delta]) -> None:
        now_s = time.perf_counter()
        for delta in deltas:
            if delta.token_ids:
                self._chunks.append((now_s, len(delta.token_ids)))
                self._ids += delta.token_ids
            if delta.finish is not None:
                self._last, self._end_s = delta, now_s
                self._target.call_soon(self)

    def judged(self, error: BaseException | None) -> None:
        if error is not None:
            self._refusal, self._end_s = error, time.perf_counter()
            self._target.call_soon(self)

    def end(self, status: Status) -> None:
        if self._last is None:
            self._early = status
            self._target.cancel(self.request_id)

    def report(self) -> None:
        status, error = self._status()
        record = self._target.record_of(self.request_id)
        wait_s = None
        if record is not None and record.first_scheduled_s is not None:
            wait_s = record.first_scheduled_s - record.accepted_s
        self._on_answer(
            Answer(
                sent_s=self.sent_s,
                chunk_s=tuple(moment_s for moment_s, _ in self._chunks),
                chunk_tokens=tuple(count for _, count in self._chunks),
                end_s=self._end_s,
                status=status,
                num_prompt=self._num_prompt,
                num_output=sum(count for _, count in self._chunks),
                num_planned=self._num_prompt,
                num_cached=None if record is None else record.num_cached_tokens,
                queue_wait_s=wait_s,
                num_preemptions=None if record is None else record.num_preemptions,
                error=error,
                text=self._target.text_of(self._ids),
            )
        )

    def _status(self) -> tuple[Status, str]:
        if self._refusal is not None:
            if not isinstance(self._refusal, NoriaError):
                raise self._refusal
            status = Status.REJECTED if isinstance(self._refusal, OverloadError) else Status.ERROR
            return status, str(self._refusal)
        assert self._last is not None and self._last.finish is not None
        status = _ENDS.get(self._last.finish, Status.ERROR)
        if status is Status.CUT and self._early is not None:
            status = self._early
        return status, self._last.error or ("" if status is Status.OK else self._last.finish.value)
