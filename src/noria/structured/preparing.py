"""Has grammars made ready by a grammar process, which is started when it is first needed and again when it ended."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue

from noria.config.errors import EngineError, NoriaError, RequestError
from noria.sampling.grammar import Grammar
from noria.structured import wire
from noria.structured.helper import GrammarProcess

log = logging.getLogger(__name__)


class Preparing:
    """Thread-safe. Asking never waits: what is asked goes out on a thread of its own.

    setup: makes what the process has to know first; called on that thread.
    """

    def __init__(self, setup: Callable[[], wire.Setup]) -> None:
        self._setup = setup
        self._lock = threading.Lock()  # guards what follows
        self._asked: dict[int, tuple[Future[None], Grammar]] = {}
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

        The future raises RequestError for a grammar that cannot be followed, or that the process did not survive,
        EngineError after `close`, and where no process can be started.
        """
        future: Future[None] = Future()
        serial = next(self._serials)
        with self._lock:
            if self._is_closed:
                future.set_exception(EngineError("the engine is shut down"))
                return future
            self._asked[serial] = (future, grammar)
            if self._sender is None:
                self._sender = threading.Thread(target=self._send_all, name="noria-grammars", daemon=True)
                self._sender.start()
            told = {request_id: tuple(tokens) for request_id, tokens in outputs.items()}
            self._outbox.put(wire.Prepare(serial, grammar.kind, grammar.text, told))
        return future

    def forget(self, request_ids: Sequence[str]) -> None:
        if request_ids and self._process is not None:
            self._outbox.put(wire.Forget(tuple(request_ids)))

    def end(self, process: GrammarProcess) -> None:
        """Of one that is gone or does not answer: what was asked of it fails, and the next question starts another."""
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
            process = self._process
            if process is None:
                if isinstance(message, wire.Forget):
                    continue  # it ended with everything that it knew
                try:
                    process = self._start()
                except Exception as error:  # the system's, and whatever a tokenizer's data may raise
                    log.exception("the grammar process cannot be started")
                    self._fail(message.serial, EngineError(f"what reads grammars cannot be started: {error}"))
                    continue
            with suppress(OSError):  # it ended, which the thread that receives will see
                process.control.send(message)

    def _fail(self, serial: int, error: NoriaError) -> None:
        with self._lock:
            future, _ = self._asked.pop(serial)
        future.set_exception(error)

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
            asked = self._asked.pop(prepared.serial, None)
        if asked is None:  # it came just before its process was given up
            return
        future, grammar = asked
        if prepared.error is None:
            future.set_result(None)
        else:
            text = f"{grammar.field} cannot be followed: {prepared.error}"
            future.set_exception(RequestError(text, grammar.field))

    def _lose(self, process: GrammarProcess) -> None:
        with self._lock:
            if self._process is not process:
                return
            self._process = None
            asked, self._asked = self._asked, {}
            is_closed = self._is_closed
        process.end()
        for future, grammar in asked.values():
            future.set_exception(_loss(grammar, is_closed, is_alone=len(asked) == 1))


def _loss(grammar: Grammar, is_closed: bool, is_alone: bool) -> NoriaError:
    """Whose fault it was is certain only of one that was read alone."""
    if is_closed:
        return EngineError("the engine is shut down")
    text = f"{grammar.field} could not be read: what reads grammars ended meanwhile"
    return RequestError(text, grammar.field) if is_alone else EngineError(text)
