"""The engine in this process, on a thread of its own."""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace

from noria.config.engine import EngineConfig
from noria.config.errors import EngineError, RequestError
from noria.core.acceptance import check_ability, max_known_tokens
from noria.core.outputs import Delta, FinishReason
from noria.engine.client import Sink, verdict_of
from noria.engine.crowd import Crowd
from noria.engine.intake import Intake
from noria.engine.loop import EngineLoop
from noria.engine.messages import EngineRequest, EngineStats
from noria.engine.preparations import Preparations
from noria.engine.records import Recorder
from noria.engine.sinks import Sinks
from noria.sampling.validate import check_token_ids

log = logging.getLogger(__name__)

# Makes the loop, given what publishes its deltas.
LoopFactory = Callable[[Callable[[list[Delta]], None]], EngineLoop]


@dataclass(frozen=True, slots=True)
class _Arrivals:
    requests: tuple[EngineRequest, ...]
    sink: Sink
    submitted_s: float
    begin_by_s: float


@dataclass(frozen=True, slots=True)
class _Cancellation:
    request_ids: tuple[str, ...]
    finish: FinishReason


class InProcessClient:
    """EngineClient whose engine steps on a daemon thread as long as there is work, and sleeps otherwise."""

    def __init__(
        self,
        make_loop: LoopFactory,
        config: EngineConfig,
        on_stats: Callable[[EngineStats], None] = lambda stats: None,
        on_crowd: Callable[[Crowd], None] | None = None,
    ) -> None:
        """on_stats: told, on the engine's thread, of every change. on_crowd: on that or a caller's."""
        self._on_stats = on_stats
        self._config = config
        self._loop = make_loop(self._publish)
        self._sinks = Sinks()  # touched by the engine's thread alone
        self._intake = Intake(config, on_crowd)
        self._preparations = Preparations(self._loop.constraints)
        self._loop.recorder.add_listener(self._intake)
        self._wake = threading.Condition()  # guards the two below, and makes taking one act
        self._inbox: list[_Arrivals | _Cancellation] = []
        self._closed: str | None = None  # why nothing more is taken
        self._stats = self._loop.stats()
        self._thread = threading.Thread(target=self._run, name="noria-engine", daemon=True)
        self._thread.start()
        atexit.register(self.shutdown)  # a step must not be under way when the interpreter goes

    @property
    def recorder(self) -> Recorder:
        return self._loop.recorder

    def submit(self, requests: Sequence[EngineRequest], sink: Sink) -> Future[None]:
        checked = verdict_of(lambda: self._check(requests))
        if checked.exception() is not None:
            return checked
        if not any(request.params.is_constrained for request in requests):
            return verdict_of(lambda: self._take(requests, sink))
        since_s = self._loop.clock.now()
        room = verdict_of(lambda: self._intake.check_room(requests, since_s))
        if room.exception() is not None:
            return room

        def take() -> None:
            self._take(_later(requests, self._loop.clock.now() - since_s), sink)

        return self._preparations.begin(requests, take, self.cancel)

    def _check(self, requests: Sequence[EngineRequest]) -> None:
        """Raises RequestError for what can never be served, or not now under its id."""
        for request in requests:
            check_token_ids(request.prompt_token_ids, self._config.model.vocab_size, "prompt")
            num_prompt = len(request.prompt_token_ids)
            max_known_tokens(num_prompt, request.params, self._config.scheduler.max_model_len)
            check_ability(request.params, self._config.model)
        ids = [request.request_id for request in requests]
        used = (i for i in ids if i in self._intake or i in self._preparations)
        taken = next(used, None) or _repeated(ids)
        if taken is not None:
            raise RequestError(f"request id {taken!r} is in use", "request_id")

    def _take(self, requests: Sequence[EngineRequest], sink: Sink) -> None:
        with self._wake:
            if self._closed is not None:
                raise EngineError(self._closed)
            taken = next((i.request_id for i in requests if i.request_id in self._intake), None)
            if taken is not None:
                raise RequestError(f"request id {taken!r} is in use", "request_id")
            now_s = self._loop.clock.now()
            begin_by_s = self._intake.take(requests, now_s)
            self._inbox.append(_Arrivals(tuple(requests), sink, now_s, begin_by_s))
            self._wake.notify()

    def cancel(self, request_ids: Sequence[str], finish: FinishReason = FinishReason.ABORT) -> None:
        self._preparations.cancel(request_ids)
        with self._wake:
            self._inbox.append(_Cancellation(tuple(request_ids), finish))
            self._wake.notify()

    def stats(self) -> EngineStats:
        return replace(self._stats, progress=self._stats.step + self._loop.runner.progress)

    def crowd(self) -> Crowd | None:
        return self._intake.crowd() if self._closed is None else None

    def shutdown(self) -> None:
        with self._wake:
            if self._closed is None:
                self._closed = "the engine is shut down"
            self._wake.notify()
        self._thread.join()
        atexit.unregister(self.shutdown)

    def _run(self) -> None:
        try:
            while self._take_commands():
                self._loop.step()
                self._set_stats(self._loop.stats())
            self._loop.abort_all()
        except (
            BaseException
        ) as error:  # a thread that ends in silence would leave its requests waiting for ever
            log.exception("the engine died")
            self._die(f"the engine failed: {type(error).__name__}")
        finally:
            self._set_stats(self._dead_stats())
            self._loop.runner.shutdown()
            self._loop.constraints.shutdown()

    def _take_commands(self) -> bool:
        """Apply what came in, waiting for something to do; False when the engine is to stop."""
        with self._wake:
            self._wake.wait_for(lambda: self._inbox or self._closed or self._loop.has_work)
            commands, self._inbox = self._inbox, []
            goes_on = self._closed is None  # together with the inbox: nothing is taken after it is closed
        self._register(commands)
        for command in commands:
            if isinstance(command, _Cancellation):
                self._loop.cancel(command.request_ids, command.finish)
                continue
            for request in command.requests:
                self._loop.add(request, command.submitted_s, command.begin_by_s)
        return goes_on

    def _register(self, commands: Sequence[_Arrivals | _Cancellation]) -> None:
        """First of all, so that whatever happens next, somebody is told."""
        for command in commands:
            if isinstance(command, _Arrivals):
                for request in command.requests:
                    self._sinks.register(request.request_id, command.sink)

    def _publish(self, deltas: list[Delta]) -> None:
        self._intake.note(deltas, self._loop.clock.now())
        orphans = self._sinks.publish(deltas)
        if orphans:
            self.cancel(orphans)

    def _die(self, reason: str) -> None:
        self._set_stats(self._dead_stats())
        with self._wake:
            self._closed = reason
            commands, self._inbox = self._inbox, []
        self._register(commands)
        open_requests = self._sinks.open_requests()
        self._publish([Delta(i, finish=FinishReason.LOST, error=reason) for i in open_requests])

    def _set_stats(self, stats: EngineStats) -> None:
        self._stats = stats
        self._on_stats(stats)

    def _dead_stats(self) -> EngineStats:
        return replace(self._stats, is_alive=False, num_running=0, num_waiting=0)


def _later(requests: Sequence[EngineRequest], passed_s: float) -> Sequence[EngineRequest]:
    """With what is left of their time; of one that has none left the loop will say so."""
    return [
        one if one.timeout_s is None else replace(one, timeout_s=max(0.0, one.timeout_s - passed_s))
        for one in requests
    ]


def _repeated(ids: Sequence[str]) -> str | None:
    seen: set[str] = set()
    for request_id in ids:
        if request_id in seen:
            return request_id
        seen.add(request_id)
    return None
