"""Runs the processes of a server: starts them, restarts what ends or hangs, and sees them all to an orderly end.

Children are forked from this process, which stays small, has no other thread and imports next to nothing, so a fork
carries no locks and no memory worth mentioning, and a child is at work some milliseconds after its start.
"""

from __future__ import annotations

import logging
import os
import selectors
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import FrameType

from noria.cli.child import run_child
from noria.cli.restarts import Restarts
from noria.engine.orders import Order, send_order

log = logging.getLogger("noria.supervisor")

_LOOK_EVERY_S = 0.25
_QUIT_S = 5.0  # for a process to end at once
_FAILURE_STATUS = 1


@dataclass(slots=True)
class Role:
    """A process that there has to be.

    run: what it does, given the descriptor of its orders; its return value is the exit status.
    on_start, on_end: told, in the supervisor, before it is forked and after it has ended.
    is_up: it has come to do what it is for. is_hung: it has, and does no more.
    is_late: given its age in seconds: it should have come to it by now.
    drains: it is told to finish its work when the server is to end; the others end after those that are.
    """

    name: str
    run: Callable[[int], int]
    on_start: Callable[[], object]
    on_end: Callable[[], object]
    is_up: Callable[[], bool]
    is_hung: Callable[[], bool]
    is_late: Callable[[float], bool]
    drains: bool
    restarts: Restarts = field(default_factory=Restarts)


@dataclass(slots=True)
class _Child:
    role: Role
    pid: int
    orders: int  # what is written here, it reads
    words: int  # its last ones, if it cannot start
    started_s: float
    is_up: bool = False
    is_killed: bool = False


class Supervisor:
    """Runs `roles` until a signal ends it, or one of them cannot be had.

    drain_s: how long those that drain get; they keep to a shorter time themselves.
    clock: seconds, steadily rising.
    """

    def __init__(
        self, roles: Sequence[Role], drain_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._roles = roles
        self._drain_s = drain_s
        self._clock = clock
        self._children: dict[int, _Child] = {}  # by process id
        self._due: list[tuple[float, Role]] = []  # to be started again, and when
        self._signals: list[int] = []
        self._selector = selectors.DefaultSelector()
        self._has_begun = False  # everything was up once
        self._end: _End | None = None

    def run(self) -> int:
        """The exit status: 0 after an orderly end, 128 + signal after a second signal, else that of what failed."""
        woken = self._take_signals()
        for role in self._roles:
            self._start(role)
        while self._children or (self._due and self._end is None):
            for key, _ in self._selector.select(_LOOK_EVERY_S):
                if key.fileobj == woken:
                    os.read(woken, 512)
            self._see_who_is_up()  # before what is done depends on it
            self._on_signals()
            self._reap()
            self._look()
        assert self._end is not None, "nothing is left to run and nobody said to end"
        return self._end.status

    def _take_signals(self) -> int:
        reader, writer = os.pipe()
        for end in (reader, writer):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)  # it wakes us, which is all
        ending = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:  # else somebody wants it outlived
            ending.append(signal.SIGHUP)
        for number in ending:
            signal.signal(number, self._note_signal)
        self._selector.register(reader, selectors.EVENT_READ)
        return reader

    def _note_signal(self, number: int, frame: FrameType | None) -> None:
        self._signals.append(number)

    def _start(self, role: Role) -> None:
        role.on_start()
        order_reader, order_writer = os.pipe()
        words_reader, words_writer = os.pipe()
        os.set_blocking(order_writer, False)
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            for other in self._children.values():
                os.close(other.orders)  # else it would not end with the supervisor
            os.close(order_writer)
            run_child(role.name, lambda: role.run(order_reader), words_writer)
        os.close(order_reader)
        os.close(words_writer)
        self._children[pid] = _Child(role, pid, order_writer, words_reader, self._clock())

    def _on_signals(self) -> None:
        signals, self._signals = self._signals, []
        for number in signals:
            if self._end is None:
                log.info("%s: finishing what runs; once more ends at once", signal.Signals(number).name)
                self._end = _End(0, self._clock() + self._drain_s)
                self._begin_to_end()
            else:
                log.warning("%s again: ending at once", signal.Signals(number).name)
                self._end = _End(128 + number, self._clock())
                self._tell_all(Order.QUIT)

    def _begin_to_end(self) -> None:
        for child in list(self._children.values()):
            if not child.is_up:
                self._kill(child)  # it has nothing that could be lost
            elif child.role.drains:
                send_order(child.orders, Order.DRAIN)
        self._go_on_ending()  # one that drains may be between its end and its next start

    def _reap(self) -> None:
        for child in list(self._children.values()):
            pid, status = os.waitpid(child.pid, os.WNOHANG)
            if pid != 0:
                del self._children[pid]
                self._on_exit(child, os.waitstatus_to_exitcode(status))

    def _on_exit(self, child: _Child, code: int) -> None:
        role = child.role
        role.on_end()
        os.close(child.orders)
        words = _read_all(child.words)
        if self._end is not None:
            self._go_on_ending()
            return
        if not self._has_begun:
            self._fail(child, code, words)
            return
        delay_s = role.restarts.next_delay_s(self._clock(), child.is_up)
        how = _how(code, child.is_killed)
        if words:
            log.error("the %s process: %s", role.name, words)
        if delay_s is None:
            log.error("the %s process %s and cannot be started again", role.name, how)
            self._end_with(_FAILURE_STATUS)
            return
        # One error a loss: a process that fails says why itself, and of one that hangs it was said.
        was_told = code > 0 or child.is_killed or words
        level = logging.WARNING if was_told else logging.ERROR
        log.log(level, "the %s process %s after %.1f s; starting another", role.name, how, self._age_s(child))
        self._due.append((self._clock() + delay_s, role))

    def _fail(self, child: _Child, code: int, words: str) -> None:
        """A first start has failed, and with it the server's."""
        if words:
            print(words, file=sys.stderr)
        else:
            how = _how(code, child.is_killed)
            print(f"noria serve: the {child.role.name} process {how} as it started", file=sys.stderr)
        self._end_with(code if code > 0 else _FAILURE_STATUS)

    def _end_with(self, status: int) -> None:
        self._end = _End(status, self._clock() + _QUIT_S)
        for child in list(self._children.values()):
            if child.is_up:
                send_order(child.orders, Order.QUIT)
            else:
                self._kill(child)

    def _go_on_ending(self) -> None:
        """When those that drain have gone, the others may."""
        assert self._end is not None
        if not any(child.role.drains for child in self._children.values()):
            self._end = _End(self._end.status, min(self._end.deadline_s, self._clock()) + _QUIT_S)
            self._tell_all(Order.QUIT)

    def _tell_all(self, order: Order) -> None:
        for child in self._children.values():
            send_order(child.orders, order)

    def _look(self) -> None:
        now_s = self._clock()
        if self._end is not None:
            if now_s > self._end.deadline_s + _QUIT_S:
                for child in self._children.values():
                    self._kill(child)
            return
        due = [role for at_s, role in self._due if at_s <= now_s]
        self._due = [(at_s, role) for at_s, role in self._due if at_s > now_s]
        for role in due:
            self._start(role)
        for child in self._children.values():
            self._look_at(child)

    def _see_who_is_up(self) -> None:
        for child in self._children.values():
            if not child.is_up and child.role.is_up():
                child.is_up = True
                name, age_s = child.role.name, self._age_s(child)
                log.info("the %s process (%d) is up after %.2f s", name, child.pid, age_s)
        self._has_begun = self._has_begun or all(child.is_up for child in self._children.values())

    def _look_at(self, child: _Child) -> None:
        if child.is_killed:
            return
        name, age_s = child.role.name, self._age_s(child)
        if child.is_up and child.role.is_hung():
            log.error("the %s process hangs; ending it", name)
            self._kill(child)
        elif not child.is_up and child.role.is_late(age_s):
            log.error(
                "the %s process is not up after %.1f s (engine_ready_timeout_s); ending it", name, age_s
            )
            self._kill(child)

    def _kill(self, child: _Child) -> None:
        if not child.is_killed:
            child.is_killed = True
            with suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGKILL)

    def _age_s(self, child: _Child) -> float:
        return self._clock() - child.started_s


@dataclass(frozen=True, slots=True)
class _End:
    """The server is ending. deadline_s: when what still runs is told to end at once."""

    status: int
    deadline_s: float


def _how(code: int, is_ours: bool) -> str:
    """The end of a process in words. code: below 0 for a signal. is_ours: we have killed it."""
    if code >= 0:
        return f"ended with status {code}"
    name = next((known.name for known in signal.Signals if known == -code), f"signal {-code}")
    is_unexplained = -code == signal.SIGKILL and not is_ours
    return f"was ended by {name}" + " (the system does that when memory runs out)" * is_unexplained


def _read_all(pipe: int) -> str:
    with os.fdopen(pipe, "rb") as reader:
        return reader.read().decode(errors="replace").strip()
