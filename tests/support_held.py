"""Holds an engine between two steps until what is to come meanwhile has come, however long that takes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from noria.core.outputs import FinishReason
from noria.engine.client import EngineClient, Sink
from noria.engine.messages import EngineRequest, RequestRecord, StepRecord

_LIMIT_S = 60.0


@dataclass
class Asked:
    """Of the engine, since it is held: sequences."""

    num_submitted: int = 0
    num_cancelled: int = 0


# After so many steps it waits until what has been asked of it meets the condition.
Hold = tuple[int, Callable[[Asked], bool]]


@contextmanager
def held(client: EngineClient, *holds: Hold) -> Iterator[Asked]:
    """While the block lasts the engine goes on by these holds, one after the other, and freely after the last.

    The first tokens of a step are told with the next one: for a client to have some, two are needed.
    """
    watch = _Watch(holds)
    client.recorder.add_listener(watch)
    whole: Any = client
    submit, cancel = whole.submit, whole.cancel
    whole.submit = watch.submitting(submit)
    whole.cancel = watch.cancelling(cancel)
    try:
        yield watch.asked
    finally:
        whole.submit, whole.cancel = submit, cancel
        watch.end()


class _Watch:
    """A RecordListener; steps are told on the engine's thread."""

    def __init__(self, holds: Sequence[Hold]) -> None:
        self.asked = Asked()
        self._holds = list(holds)
        self._num_steps = 0  # since the last hold
        self._changed = threading.Condition()

    def on_step(self, record: StepRecord) -> None:
        with self._changed:
            self._num_steps += 1
            while self._holds and self._num_steps >= self._holds[0][0]:
                assert self._changed.wait_for(self._may_go_on, _LIMIT_S), f"held for ever: {self.asked}"
                del self._holds[:1]
                self._num_steps = 0

    def on_request(self, record: RequestRecord) -> None:
        pass

    def submitting(self, submit: Callable[..., Future[None]]) -> Callable[..., Future[None]]:
        def submitted(requests: Sequence[EngineRequest], sink: Sink) -> Future[None]:
            verdict = submit(requests, sink)
            self._note(len(requests), 0)
            return verdict

        return submitted

    def cancelling(self, cancel: Callable[..., None]) -> Callable[..., None]:
        def cancelled(request_ids: Sequence[str], finish: FinishReason = FinishReason.ABORT) -> None:
            cancel(request_ids, finish)
            self._note(0, len(request_ids))

        return cancelled

    def end(self) -> None:
        with self._changed:
            self._holds.clear()
            self._changed.notify_all()

    def _may_go_on(self) -> bool:
        return not self._holds or self._holds[0][1](self.asked)

    def _note(self, num_submitted: int, num_cancelled: int) -> None:
        with self._changed:
            self.asked.num_submitted += num_submitted
            self.asked.num_cancelled += num_cancelled
            self._changed.notify_all()
