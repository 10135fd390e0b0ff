"""Has grammars made ready by a grammar process, which is started when it is first needed and again when it ended."""

from __future__ import annotations

import itertools
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue

from noria.config.errors import EngineError, NoriaError, RequestError
from noria.sampling.grammar import Grammar, Prologue
from noria.structured import wire
from noria.structured.helper import GrammarProcess

log = logging.getLogger(__name__)


_Key = tuple[str, str, Prologue | None, str]  # of a grammar, as in sampling.grammar

_MAX_KEPT = 256  # grammars that are known to be good
_MAX_KEPT_TEXT = 4 << 20  # characters of them


@dataclass(slots=True)
class _Question:
    """tenant: whose turn it takes. to: the process that it was sent to. is_again: one before that had it too, and
    ended.
    """

    serial: int
    grammar: Grammar
    outputs: dict[str, tuple[int, ...]]
    tenant: str
    future: Future[None]
    to: GrammarProcess | None = None
    sent_to: GrammarProcess | None = None
    is_again: bool = False


def _key_of(grammar: Grammar) -> _Key:
    return grammar.kind, grammar.text, grammar.prologue, grammar.begins_not


class _Vetted:
    """What was found of grammars lately. Guarded by who has it."""

    def __init__(self) -> None:
        self._kept: OrderedDict[_Key, wire.Vetted] = OrderedDict()
        self._num_characters = 0

    def find(self, key: _Key) -> wire.Vetted | None:
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
        return found

    def keep(self, key: _Key, vetted: wire.Vetted) -> None:
        if key in self._kept:
            return
        self._kept[key] = vetted
        self._num_characters += len(vetted.source)
        while len(self._kept) > 1 and (len(self._kept) > _MAX_KEPT or self._num_characters > _MAX_KEPT_TEXT):
            self._num_characters -= len(self._kept.popitem(last=False)[1].source)


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
        self._vetted = _Vetted()
        self._trials: dict[tuple[_Key, str], list[int]] = {}  # serials of a tenant that one verdict is for
        self._outbox: SimpleQueue[int | wire.Forget | None] = SimpleQueue()  # serials of questions among them

    @property
    def process(self) -> GrammarProcess | None:
        """The one that runs; another than before when that ended."""
        return self._process

    def ask(self, grammar: Grammar, outputs: Mapping[str, Sequence[int]], tenant: str = "") -> Future[None]:
        """Have sequences of a grammar made ready. outputs: request id -> its output so far.

        One that is not known yet is tried out first, apart from those that are followed, and once for all of a tenant's
        who ask. A process may end by the fault of another's grammar, so what it had not read goes to the next one,
        once. The future raises RequestError for a grammar that cannot be followed, or that neither survived,
        EngineError after `close`, and where no process can be started. It may be cancelled, which keeps it from the
        next one.
        """
        future: Future[None] = Future()
        serial = next(self._serials)
        with self._lock:
            if self._is_closed:
                future.set_exception(EngineError("the engine is shut down"))
                return future
            told = {request_id: tuple(tokens) for request_id, tokens in outputs.items()}
            self._asked[serial] = _Question(serial, grammar, told, tenant, future)
            if self._sender is None:
                self._sender = threading.Thread(target=self._send_all, name="noria-grammars", daemon=True)
                self._sender.start()
            self._outbox.put(serial)
        return future

    def is_slow(self, grammar: Grammar) -> bool:
        """Whether reading it takes long, or may: it is not known any more."""
        with self._lock:
            vetted = self._vetted.find(_key_of(grammar))
        return vetted is None or vetted.is_slow

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
        while (item := self._outbox.get()) is not None:
            with suppress(OSError):  # it ended, which the threads that receive will see
                if not isinstance(item, wire.Forget):
                    self._send_question(item)
                elif (
                    process := self._process
                ) is not None:  # one that is gone knows no more what it was to forget
                    process.control.send(item)

    def _send_question(self, serial: int) -> None:
        question = self._sendable(serial)
        if question is None:
            return
        key = _key_of(question.grammar)
        with self._lock:
            process, vetted = question.to, self._vetted.find(key)
            if process is None:  # it has ended, and the question comes again
                return
            # What was put out twice goes out once: a second time, a sequence would begin anew.
            alike = self._trials.setdefault((key, question.tenant), []) if vetted is None else []
            if question.sent_to is process or serial in alike:
                return
            if vetted is None:
                alike.append(serial)
            else:
                question.sent_to = process
        if vetted is None:
            if alike[0] == serial:
                process.vetting.send(wire.Vet(serial, *key, question.tenant))
            return
        process.control.send(wire.Prepare(serial, vetted.source, vetted.is_slow, question.outputs))

    def _sendable(self, serial: int) -> _Question | None:
        """With the process to ask; None where there is none to be had, or nobody waits for the answer any more."""
        while True:
            try:
                process = self._process or self._start()
            except Exception as error:  # the system's, and whatever a tokenizer's data may raise
                log.exception("the grammar process cannot be started")
                self._fail(serial, EngineError(f"what reads grammars cannot be started: {error}"))
                return None
            with self._lock:
                question = self._asked.get(serial)
                if question is None:
                    return None
                if self._process is process:
                    question.to = process
                    return question

    def _fail(self, serial: int, error: NoriaError) -> None:
        with self._lock:
            question = self._asked.pop(serial, None)
        if question is not None:
            _tell(question.future, error)

    def _start(self) -> GrammarProcess:
        setup = self._setup()
        self._process = process = GrammarProcess()
        for receive in self._receive_all, self._receive_verdicts:
            threading.Thread(target=receive, args=(process,), name="noria-grammars-in", daemon=True).start()
        with suppress(OSError):
            process.control.send(setup)
        return process

    def _receive_all(self, process: GrammarProcess) -> None:
        try:
            while True:
                prepared = process.control.receive()
                process.has_answered = True
                self._settle(prepared)
        except EOFError:
            self._lose(process)

    def _receive_verdicts(self, process: GrammarProcess) -> None:
        try:
            while True:
                self._take_verdict(process, process.vetting.receive())
        except EOFError:
            self._lose(process)

    def _take_verdict(self, process: GrammarProcess, vetted: wire.Vetted) -> None:
        with self._lock:
            question = self._asked.get(vetted.serial)
            if question is None or question.to is not process:  # the next one has been asked
                return
            key = _key_of(question.grammar)
            alike = self._trials.pop((key, question.tenant), [])
            if vetted.error is None:
                self._vetted.keep(key, vetted)
        for serial in alike:
            if vetted.error is None:
                self._outbox.put(serial)
            else:
                self._settle(wire.Prepared(serial, vetted.error))

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
            self._trials.clear()
            is_closed = self._is_closed
            lost = [one for one in self._asked.values() if one.to is process or is_closed]
            given_up = [one for one in lost if is_closed or one.is_again or one.future.cancelled()]
            for one in given_up:
                del self._asked[one.serial]
            for one in lost:
                if one not in given_up:
                    one.to, one.is_again = None, True
                    self._outbox.put(one.serial)
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
