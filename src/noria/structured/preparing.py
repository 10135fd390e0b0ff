"""Has grammars made ready by a grammar process, which is started when it is first needed and again when it ended."""

from __future__ import annotations

import itertools
import logging
import math
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from queue import SimpleQueue

from noria.config.errors import EngineError, NoriaError, RequestError
from noria.sampling.grammar import Grammar, Prologue
from noria.structured import wire
from noria.structured.awaited import Awaited
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


class _Loss(Enum):
    """What became of a process."""

    ENDED = "ended meanwhile"
    LATE = "did not answer in time"


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
        self._awaited = Awaited()  # of the process
        self._outbox: SimpleQueue[int | wire.Forget | None] = SimpleQueue()  # serials of questions among them

    @property
    def process(self) -> GrammarProcess | None:
        """The one that runs; another than before when that ended."""
        return self._process

    def ask(self, grammar: Grammar, outputs: Mapping[str, Sequence[int]], tenant: str = "") -> Future[None]:
        """Have sequences of a grammar made ready. outputs: name -> its output so far.

        One that is not known yet is tried out first, apart from those that are followed, and once for all of a tenant's
        who ask. A process may end by the fault of another's grammar, so what it had not read goes to the next one,
        once. The future raises RequestError for a grammar that cannot be followed, or that neither survived,
        EngineError after `close`, where no process can be started, and where it is not answered in time.
        """
        future: Future[None] = Future()
        serial = next(self._serials)
        with self._lock:
            if self._is_closed:
                future.set_exception(EngineError("the engine is shut down"))
                return future
            if self._sender is None:
                sender = threading.Thread(target=self._send_all, name="noria-grammars", daemon=True)
                sender.start()  # or raises, and the next one who asks tries again
                self._sender = sender
            told = {name: tuple(tokens) for name, tokens in outputs.items()}
            self._asked[serial] = _Question(serial, grammar, told, tenant, future)
            self._outbox.put(serial)
        return future

    def is_slow(self, grammar: Grammar) -> bool:
        """Whether reading it takes long, or may: it is not known any more."""
        with self._lock:
            vetted = self._vetted.find(_key_of(grammar))
        return vetted is None or vetted.is_slow

    def forget(self, names: Sequence[str]) -> None:
        if names and self._process is not None:
            self._outbox.put(wire.Forget(tuple(names)))

    def end(self, process: GrammarProcess) -> None:
        """Of one that is gone or does not answer; the next question starts another."""
        process.end()
        self._lose(process)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            left = list(self._asked.values())
            self._asked.clear()
        for question in left:
            question.future.set_exception(EngineError("the engine is shut down"))
        self._outbox.put(None)
        self._end_current()  # which may read nothing: the sender would wait for it
        if self._sender is not None:
            self._sender.join()
        self._end_current()  # one that was being started

    def _end_current(self) -> None:
        if (process := self._process) is not None:
            self.end(process)

    def _send_all(self) -> None:
        """Until it is closed; in between, gives up what is not answered in time."""
        while True:
            with self._lock:
                due_s = self._awaited.due_s
            left_s = None if due_s == math.inf else max(0.0, due_s - time.monotonic())
            with suppress(queue.Empty):
                item = self._outbox.get(timeout=left_s)
                if item is None:
                    return
                self._send(item)
            self._give_up_late()

    def _send(self, item: int | wire.Forget) -> None:
        process = self._process
        try:
            if not isinstance(item, wire.Forget):
                self._send_question(item)
            elif process is not None:  # one that is gone knows no more what it was to forget
                process.control.send(item)
        except BlockingIOError:  # it has not read for too long
            if (process := self._process) is not None:
                self._lose(process, _Loss.LATE)
        except OSError:
            pass  # it ended, which the threads that receive will see
        except Exception as error:  # whatever it is: whoever waits hears of it, and others are asked about
            log.exception("the grammar process cannot be asked")
            if not isinstance(item, wire.Forget):
                self._fail_alike(item, error)

    def _fail_alike(self, serial: int, error: Exception) -> None:
        """A question, and all that wait for the same verdict."""
        with self._lock:
            question = self._asked.get(serial)
            if question is None:
                return
            alike = self._trials.pop((_key_of(question.grammar), question.tenant), [serial])
            self._awaited.hear_verdict(len(self._trials))
        field = question.grammar.field
        for one in alike:
            self._fail(one, EngineError(f"{field} could not be asked about: {type(error).__name__}"))

    def _give_up_late(self) -> None:
        """And with it the process, which cannot be stopped from working on it otherwise."""
        now_s = time.monotonic()
        with self._lock:
            process, awaited = self._process, self._awaited
            if process is None or awaited.due_s > now_s:
                return
            late = awaited.late(now_s)
            question = None if late is None else self._asked.pop(late, None)
        log.error("the grammar process does not answer and is ended")
        self._lose(process, _Loss.LATE, question)
        if question is not None:
            field = question.grammar.field
            text = f"{field} could not be made ready: what reads grammars did not answer in time"
            question.future.set_exception(EngineError(text))

    def _send_question(self, serial: int) -> None:
        question = self._sendable(serial)
        if question is None:
            return
        key = _key_of(question.grammar)
        with self._lock:
            process, vetted = question.to, self._vetted.find(key)
            if process is None or process is not self._process or serial not in self._asked:
                return  # it has ended, and the question comes again or was given up
            # What was put out twice goes out once: a second time, a sequence would begin anew.
            alike = self._trials.setdefault((key, question.tenant), []) if vetted is None else []
            if question.sent_to is process or serial in alike:
                return
            if vetted is None:
                alike.append(serial)
                if alike[0] == serial:
                    self._awaited.await_verdict()
            else:
                question.sent_to = process
                self._awaited.add(serial, vetted.is_slow)
        if vetted is None:
            if alike[0] == serial:
                process.vetting.send(wire.Vet(serial, *key, question.tenant))
            return
        process.control.send(wire.Prepare(serial, vetted.source, vetted.is_slow, question.outputs))

    def _sendable(self, serial: int) -> _Question | None:
        """With the process to ask; None where there is none to be had, or nobody waits for the answer any more."""
        while True:
            with self._lock:
                if serial not in self._asked:
                    return None
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
            self._awaited.drop(serial)
        if question is not None:
            question.future.set_exception(error)

    def _start(self) -> GrammarProcess:
        setup = self._setup()
        self._process = process = GrammarProcess()
        try:
            for take in self._take_prepared, self._take_verdict:
                arguments = (process, take)
                threading.Thread(
                    target=self._receive, args=arguments, name="noria-grammars-in", daemon=True
                ).start()
            self._introduce(process, setup)
        except BaseException:  # it would be asked, and not be heard or know what it has to
            self.end(process)
            raise
        return process

    def _introduce(self, process: GrammarProcess, setup: wire.Setup) -> None:
        try:
            process.control.send(setup)
        except BlockingIOError:  # what is sent next would be read as the rest
            raise
        except OSError:
            pass  # it ended, which the threads that receive will see

    def _receive(self, process: GrammarProcess, take: Callable[[GrammarProcess], None]) -> None:
        """take: what it says next; raises EOFError when it is gone."""
        try:
            while True:
                take(process)
        except EOFError:
            pass
        except Exception:  # whatever it is: nobody would hear of this process again
            log.exception("the grammar process cannot be understood and is ended")
        self._lose(process)

    def _take_prepared(self, process: GrammarProcess) -> None:
        prepared: wire.Prepared = process.control.receive()
        process.has_answered = True
        self._settle(process, prepared)

    def _take_verdict(self, process: GrammarProcess) -> None:
        vetted: wire.Vetted = process.vetting.receive()
        with self._lock:
            begun = (one for one, alike in self._trials.items() if alike[0] == vetted.serial)
            trial = next(begun, None)
            if trial is None or process is not self._process:  # the next one has been asked
                return
            alike = self._trials.pop(trial)
            self._awaited.hear_verdict(len(self._trials))
            if vetted.error is None:
                self._vetted.keep(trial[0], vetted)
        for serial in alike:
            if vetted.error is None:
                self._outbox.put(serial)
            else:
                self._settle(process, wire.Prepared(serial, vetted.error))

    def _settle(self, process: GrammarProcess, prepared: wire.Prepared) -> None:
        with self._lock:
            question = self._asked.get(prepared.serial)
            if question is None or question.to is not process:  # it came just before its process was given up
                return
            del self._asked[prepared.serial]
            self._awaited.drop(prepared.serial)
        if prepared.error is None:
            question.future.set_result(None)
        else:
            field = question.grammar.field
            text = f"{field} cannot be followed: {prepared.error}"
            question.future.set_exception(RequestError(text, field))

    def _lose(
        self, process: GrammarProcess, loss: _Loss = _Loss.ENDED, blamed: _Question | None = None
    ) -> None:
        """blamed: what ended it, if that is known; nothing else is suspected of it then."""
        with self._lock:
            if self._process is not process:
                return
            self._process = None
            self._trials.clear()
            self._awaited = Awaited()
            lost = [one for one in self._asked.values() if one.to is process]
            given_up = [one for one in lost if one.is_again and blamed is None]
            for one in given_up:
                del self._asked[one.serial]
            for one in lost:
                if one not in given_up:
                    one.to, one.is_again = None, one.is_again or blamed is None
                    self._outbox.put(one.serial)
        process.end()
        for one in given_up:
            one.future.set_exception(_error_of(one.grammar, loss, is_alone=len(lost) == 1))


def _error_of(grammar: Grammar, loss: _Loss, is_alone: bool) -> NoriaError:
    """Whose fault it was is certain only of one that was read alone by what ended."""
    text = f"{grammar.field} could not be read: what reads grammars {loss.value}"
    is_its_own = is_alone and loss is _Loss.ENDED
    return RequestError(text, grammar.field) if is_its_own else EngineError(text)
