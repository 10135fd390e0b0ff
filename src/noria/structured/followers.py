"""Grammars that took long to read stay with the processes that have read them, which make their sequences' masks.

A compiled grammar cannot be handed on: it is memory of the process that compiled it. So a trial (`structured.vetting`)
that took long offers itself to the grammar process, which asks it from then on. Where there are too many, or one of
them is gone, the grammar process reads the grammar as it reads quick ones.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import os
import resource
import socket
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from queue import SimpleQueue
from typing import NamedTuple

from llguidance import LLMatcher, LLTokenizer

from noria.structured import wire
from noria.structured.faults import GrammarFault
from noria.structured.mask_memory import MaskMemory, open_memory
from noria.structured.matchers import Matchers

_MAX_KEPT = 16  # processes
_MOST_KEPT_BYTES = 512 << 20  # that reading took, of one of them: they stay for as long as there are no more
_MAX_SEQUENCES = 8  # of one of them, whose masks it makes one after the other: more would be waited for
_MAX_FALLEN = 64  # grammars that are remembered
_PATIENCE_S = 0.05  # that others' masks wait for those of a process; who is late is asked about again
_ANSWER_LIMIT_S = 2.0  # for a mask, after which its process is given up
_PREPARE_LIMIT_S = 30.0
_NUM_ENDS = 2
_NUM_SENT = 3  # descriptors: those ends, and memory


def handover() -> tuple[socket.socket, socket.socket]:
    """Through which trials offer themselves, and where they are taken in. Neither end ever blocks."""
    offers, taken = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    for end in (offers, taken):
        end.setblocking(False)
    return offers, taken


class Offering:
    """A trial's side, of one that may stay. Its masks are made on a thread of the priority that it begins with.

    They are in memory of its own: what it fills too late, once it has been given up, is nobody's row.
    """

    def __init__(self, vocabulary: LLTokenizer, offers: socket.socket) -> None:
        self._offers = offers
        self._begun_bytes = _peak_bytes()
        self._matchers = Matchers(vocabulary, max_threads=1)
        self._masks = open_memory()
        self._steps: SimpleQueue[wire.Channel] = SimpleQueue()
        self._control: wire.Channel | None = None
        threading.Thread(target=self._fill_masks, daemon=True).start()

    def offer(self, source: str, compiled: LLMatcher) -> bool:
        """Whether it is to `serve`: not one that holds much memory, or while many others have offered themselves and
        nobody has looked yet.
        """
        if _peak_bytes() - self._begun_bytes > _MOST_KEPT_BYTES:
            return False
        pairs = [socket.socketpair() for _ in range(_NUM_ENDS)]
        theirs = [end for _, end in pairs]
        try:
            sent = [*(end.fileno() for end in theirs), self._masks.fileno()]
            socket.send_fds(self._offers, [_digest(source)], sent)
        except OSError:
            return False
        for end in theirs:
            end.close()
        (control, _), (steps, _) = pairs
        self._matchers.compiled.keep(source, compiled)
        self._control = wire.Channel(control, wire.Command)
        self._steps.put(wire.Channel(steps, wire.Fill))
        unlimited = resource.getrlimit(resource.RLIMIT_CPU)[1]
        resource.setrlimit(resource.RLIMIT_CPU, (unlimited, unlimited))
        return True

    def serve(self) -> None:
        """Raises EOFError when it is not needed any more."""
        assert self._control is not None, "nothing was offered"
        while True:
            command = self._control.receive()
            if isinstance(command, wire.Prepare):
                error = self._matchers.error_of(command.source, command.outputs)
                self._control.send(wire.Prepared(command.serial, error))
            else:
                self._matchers.forget(command.names)

    def _fill_masks(self) -> None:
        steps = self._steps.get()
        memory = MaskMemory(self._masks, self._matchers.row_bytes)
        try:
            while True:
                steps.send(self._matchers.fill(steps.receive(), memory))
        finally:
            os._exit(0)


class _Asked(NamedTuple):
    """A question under way. row: of the shared memory, where its mask goes."""

    name: str
    row: int


class _Answer(NamedTuple):
    filled: wire.Filled
    mask: bytes


class Follower:
    """Such a process, as the grammar process knows it. names: of the sequences that it follows.

    is_gone: it has ended, or has been ended. has_fallen: it has ended by itself.
    """

    def __init__(self, received: Sequence[int], row_bytes: int) -> None:
        """received: descriptors of the sockets, and of the memory, which has row_bytes to a mask."""
        control, steps = (socket.socket(fileno=end) for end in received[:_NUM_ENDS])
        self._memory = MaskMemory(io.FileIO(received[_NUM_ENDS], "r+"), row_bytes)
        self._row_bytes = row_bytes
        self._asked: deque[_Asked] = deque()  # in the order in which they are answered
        self._heard_s = 0.0  # when it last answered, or was asked after it had answered all
        control.settimeout(_PREPARE_LIMIT_S)  # a full buffer is as bad as no answer
        steps.settimeout(_ANSWER_LIMIT_S)
        self._control = wire.Channel(control, wire.Prepared)
        self._steps = wire.Channel(steps, wire.Filled)
        self._forgotten: deque[str] = deque()  # of which it has not been told yet
        self.names: set[str] = set()
        self.is_gone = self.has_fallen = False

    def prepare(self, command: wire.Prepare) -> bool:
        """Whether it follows these sequences now; False: it is gone. Raises GrammarFault. On one thread at a time."""
        try:
            forgotten = tuple(self._forgotten.popleft() for _ in range(len(self._forgotten)))
            if forgotten:
                self._control.send(wire.Forget(forgotten))
            self._control.send(command)
            if not self._control.has_news(_PREPARE_LIMIT_S):
                self.end()
                return False
            prepared: wire.Prepared = self._control.receive()
        except (EOFError, OSError) as error:
            self._fall(error)
            return False
        if prepared.error is not None:
            raise GrammarFault(prepared.error)
        self.names.update(command.outputs)
        return True

    def forget(self, name: str) -> None:
        """From any thread, which waits for nothing: it is told of it before it is to prepare others."""
        self.names.discard(name)
        self._forgotten.append(name)

    def owes(self, name: str) -> bool:
        """Whether there is a mask to come."""
        return any(one.name == name for one in self._asked)

    def ask(self, name: str, tokens: tuple[int, ...]) -> None:
        """For a mask that `answers` will bring, unless it is gone by then."""
        if self.is_gone or self.owes(name):
            return
        if not self._asked:
            self._heard_s = time.monotonic()
        used = {one.row for one in self._asked}
        asked = _Asked(name, next(row for row in itertools.count() if row not in used))
        try:
            self._memory.grow(asked.row + 1)
            self._steps.send(wire.Fill(asked.row, {name: tokens}))
        except OSError as error:
            self._fall(error)
        self._asked.append(asked)

    def answers(self, end_s: float) -> Iterator[tuple[str, _Answer]]:
        """By name, those that come by then. It is ended when it has not answered for too long."""
        try:
            while self._asked and not self.is_gone and self._has_news(end_s):
                filled: wire.Filled = self._steps.receive()
                self._heard_s = time.monotonic()
                asked = self._asked.popleft()
                yield asked.name, _Answer(filled, self._mask(asked.row))
        except (EOFError, OSError) as error:
            self._fall(error)

    def _has_news(self, end_s: float) -> bool:
        """By then; it is ended when there has been none for too long."""
        has_news = self._steps.has_news(max(0.0, end_s - time.monotonic()))
        if not has_news and time.monotonic() - self._heard_s > _ANSWER_LIMIT_S:
            self.end()
        return has_news

    def _mask(self, row: int) -> bytes:
        return self._memory.rows(row + 1)[row * self._row_bytes : (row + 1) * self._row_bytes]

    def _fall(self, error: Exception) -> None:
        self.has_fallen |= not self.is_gone and not isinstance(error, TimeoutError)
        self.end()

    def end(self) -> None:
        self.is_gone = True
        self._control.close()  # of which it hears whatever else it is doing
        self._steps.close()


class Followers:
    """Those that were used last. On one thread."""

    def __init__(self, taken: socket.socket, row_bytes: int) -> None:
        """row_bytes: to a mask."""
        self._taken = taken
        self._row_bytes = row_bytes
        self._kept: OrderedDict[bytes, Follower] = OrderedDict()
        self._fallen: OrderedDict[bytes, None] = OrderedDict()

    def find(self, source: str, num_sequences: int) -> Follower | None:
        """The one of a grammar, if it has offered itself and can take so many more.

        Raises GrammarFault for a grammar that ended its own: here it would end everybody's.
        """
        while offer := self._take():
            self._keep(*offer)
        key = _digest(source)
        follower = self._kept.pop(key, None)
        if follower is not None and follower.has_fallen:
            self._fallen[key] = None
            if len(self._fallen) > _MAX_FALLEN:
                self._fallen.popitem(last=False)
        if key in self._fallen:
            raise GrammarFault("what followed it took more memory than a grammar may, or failed")
        if follower is None or follower.is_gone:
            return None
        self._kept[key] = follower  # the last one used
        has_room = len(follower.names) + num_sequences <= _MAX_SEQUENCES
        return follower if has_room else None

    def _keep(self, key: bytes, follower: Follower) -> None:
        kept = self._kept.get(key)
        if kept is not None and not kept.is_gone:
            follower.end()  # the same was tried out twice at a time
            return
        self._kept[key] = follower
        self._drop_unused()

    def _take(self) -> tuple[bytes, Follower] | None:
        try:
            key, received, _, _ = socket.recv_fds(self._taken, hashlib.sha256().digest_size, _NUM_SENT)
        except OSError:
            return None
        if len(received) < _NUM_SENT:  # this process may open no more files
            for descriptor in received:
                os.close(descriptor)
            return None
        return key, Follower(received, self._row_bytes)

    def _drop_unused(self) -> None:
        """The newest is not used yet: where all others are, it goes."""
        if len(self._kept) <= _MAX_KEPT:
            return
        unused = next(key for key, one in self._kept.items() if one.is_gone or not one.names)
        self._kept.pop(unused).end()


class Sequences:
    """All that the grammar process follows, by itself or by others. `prepare` on any thread, but one at a time where
    the grammar is slow; `fill` on one; `forget` on any, which waits for nothing.
    """

    def __init__(self, matchers: Matchers, followers: Followers) -> None:
        self._matchers = matchers
        self._followers = followers
        self._theirs: dict[str, Follower] = {}

    def prepare(self, command: wire.Prepare) -> str | None:
        """What is wrong with the grammar."""
        self.forget(tuple(command.outputs))  # of one that is followed anew
        try:
            follower = self._followers.find(command.source, len(command.outputs)) if command.is_slow else None
            if follower is not None and follower.prepare(command):
                self._theirs |= dict.fromkeys(command.outputs, follower)
                return None
        except GrammarFault as fault:
            return str(fault)
        return self._matchers.error_of(command.source, command.outputs)

    def forget(self, names: Sequence[str]) -> None:
        for name in names:
            if (follower := self._theirs.pop(name, None)) is not None:
                follower.forget(name)
        self._matchers.forget(names)

    def fill(self, asked: wire.Fill, memory: MaskMemory) -> wire.Filled:
        """As Matchers.fill, which knows nothing of those that others follow."""
        theirs = {name: one for name in asked.news if (one := self._theirs.get(name)) is not None}
        if not theirs:
            return self._matchers.fill(asked, memory)
        newly_asked = {one for name, one in theirs.items() if not one.owes(name)}
        for name, follower in theirs.items():
            follower.ask(name, asked.news[name])
        filled = self._matchers.fill(asked, memory)
        now_s = time.monotonic()
        answers: dict[str, _Answer] = {}
        for follower in dict.fromkeys(theirs.values()):
            # One that was late before keeps nobody waiting again.
            answers |= follower.answers(now_s + _PATIENCE_S if follower in newly_asked else now_s)
        late = tuple(name for name, one in theirs.items() if name not in answers and not one.is_gone)
        errors, unknown = dict(filled.errors), set(filled.unknown).difference(late)
        row_bytes = self._matchers.row_bytes
        rows = memory.rows(asked.first_row + len(asked.news))
        for row, name in enumerate(asked.news, asked.first_row):
            answer = answers.get(name) if name in theirs else None
            if answer is not None and not answer.filled.unknown:
                errors |= answer.filled.errors
                rows[row * row_bytes : (row + 1) * row_bytes] = answer.mask
                unknown.discard(name)
        return wire.Filled(errors, tuple(unknown), late)


def _digest(source: str) -> bytes:
    return hashlib.sha256(source.encode()).digest()


def _peak_bytes() -> int:
    """Of memory, that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
