"""Has grammars made ready by a grammar process, which is started when it is first needed and again when it ended."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue

from noria.config.errors import EngineError, NoriaError, RequestError
from noria.sampling.grammar import Grammar
from noria.structured import wire
from noria.structured.helper import GrammarProcess

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Question:
    """to: the process that it was sent to. is_again: one before that had it too, and ended."""

    message: wire.Prepare
    grammar: Grammar
    future: Future[None]
    to: GrammarProcess | None = None
    is_again: bool = False


class Preparing:
    """Thread-safe. Asking never waits: what is asked goes out on a thread of its own.

    setup: makes what the process has to know first; called on that thread.
    """

    def __init__(self, setup: Callable[[], wire.Setup]) -> None:
        self._setup = setup
        self._lock = threading.Lock()  # guards what follows
        self._asked: dict[int, _Question] = {}
        self._process: GrammarProcess | None = None
        self._sender: threading.Thread | None = None
        self._is_closed = False
        self._serials = itertools.count(1)
        self._outbox: SimpleQueue[wire.Prepare | wire.Forget | None] = SimpleQueue()

    @property
    def process(self) -> GrammarProcess | None:
        """The one that runs; another than before when that ended."""
        return self._process

    def ask(self, grammar: Grammar, outputs: Mapping[str, Sequence[int]]) -> Future[None]:
        """Have sequences of a grammar made ready. outputs: request id -> its output so far.

        A process may end by the fault of another's grammar, so what it had not read goes to the next one, once. The
        future raises RequestError for a grammar that cannot be followed, or that neither survived, EngineError after
        `close`, and where no process can be started. It may be cancelled, which keeps it from the next one.
        """
        future: Future[None] = Future()
        serial = next(self._serials)
        with self._lock:
            if self._is_closed:
                future.set_exception(EngineError("the engine is shut down"))
                return future
            told = {request_id: tuple(tokens) for request_id, tokens in outputs.items()}
            message = wire.Prepare(serial, grammar.kind, grammar.text, told)
            self._asked[serial] = _Question(message, grammar, future)
            if self._sender is None:
                self._sender = threading.Thread(target=self._send_all, name="noria-grammars", daemon=True)
                self._sender.start()
            self._outbox.put(message)
        return future

    def forget(self, request_ids: Sequence[str]) -> None:
        if request_ids and self._process is not None:
            self._outbox.put(wire.Forget(tuple(request_ids)))

    def end(self, process: GrammarProcess) -> None:
        """Of one that is gone or does not answer; the next question starts another."""
        process.end()
        self._lose(process)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
        self._outbox.put(None)
        if self._sender is not None:
            self._sender.join()
        if self._process is not None:
            self.end(self._process)

    def _send_all(self) -> None:
        while (message := self._outbox.get()) is not None:
            # One that is gone knows no more what it was to forget.
            process = self._process if isinstance(message, wire.Forget) else self._taker_of(message)
            if process is not None:
                with suppress(OSError):  # it ended, which the thread that receives will see
                    process.control.send(message)

    def _taker_of(self, message: wire.Prepare) -> GrammarProcess | None:
        """The process to ask; None where there is none to be had, or nobody waits for the answer any more."""
        while True:
            try:
                process = self._process or self._start()
            except Exception as error:  # the system's, and whatever a tokenizer's data may raise
                log.exception("the grammar process cannot be started")
                self._fail(message.serial, EngineError(f"what reads grammars cannot be started: {error}"))
                return None
            with self._lock:
                question = self._asked.get(message.serial)
                if question is None:
                    return None
                if self._process is process:
                    question.to = process
                    return process

    def _fail(self, serial: int, error: NoriaError) -> None:
        with self._lock:
            question = self._asked.pop(serial, None)
        if question is not None:
            _tell(question.future, error)

    def _start(self) -> GrammarProcess:
        setup = self._setup()
        self._process = process = GrammarProcess()
        receiver = threading.Thread(
            target=self._receive_all, args=(process,), name="noria-grammars-in", daemon=True
        )
        receiver.start()
        with suppress(OSError):
            process.control.send(setup)
        return process

    def _receive_all(self, process: GrammarProcess) -> None:
        try:
            while True:
                self._settle(process.control.receive())
        except EOFError:
            self._lose(process)

    def _settle(self, prepared: wire.Prepared) -> None:
        with self._lock:
            question = self._asked.pop(prepared.serial, None)
        if question is None:  # it came just before its process was given up
            return
        if prepared.error is None:
            _tell(question.future, None)
        else:
            field = question.grammar.field
            _tell(question.future, RequestError(f"{field} cannot be followed: {prepared.error}", field))

    def _lose(self, process: GrammarProcess) -> None:
        with self._lock:
            if self._process is not process:
                return
            self._process = None
            is_closed = self._is_closed
            lost = [one for one in self._asked.values() if one.to is process or is_closed]
            given_up = [one for one in lost if is_closed or one.is_again or one.future.cancelled()]
            for one in given_up:
                del self._asked[one.message.serial]
            for one in lost:
                if one not in given_up:
                    one.to, one.is_again = None, True
                    self._outbox.put(one.message)
        process.end()
        for one in given_up:
            _tell(one.future, _loss(one.grammar, is_closed, is_alone=len(lost) == 1))


def _tell(future: Future[None], error: NoriaError | None) -> None:
    if not future.set_running_or_notify_cancel():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)


def _loss(grammar: Grammar, is_closed: bool, is_alone: bool) -> NoriaError:
    """Whose fault it was is certain only of one that was read alone."""
    if is_closed:
        return EngineError("the engine is shut down")
    text = f"{grammar.field} could not be read: what reads grammars ended meanwhile"
    return RequestError(text, grammar.field) if is_alone else EngineError(text)
