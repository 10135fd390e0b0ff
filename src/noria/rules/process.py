"""The engine's end of rules' processes: what starts them, and an exchange with many at once within one time."""

from __future__ import annotations

import os
import pickle
import selectors
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec

from noria.rules.api import ModelFacts
from noria.rules.messages import LENGTH, Command, End, Fork, FromChild, decode_from_child, encoded

_CODE = "import sys; sys.path[:] = {path!r}; from noria.rules.nursery import main; main()"
_READ_BYTES = 1 << 18
_END_LIMIT_S = 2.0
# A product of a rule's own is small, and the model's threads have the processors.
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class Lost(Exception):
    """A process that ended, did not answer in time, or answered with what is no answer; in words."""


class Late(Lost):
    """It has not answered in time."""


@dataclass(eq=False)
class RuleProcess:
    """line: to the child. pid: None until it is born."""

    line: socket.socket
    pid: int | None = None
    received: bytearray = field(default_factory=bytearray)

    def take(self) -> FromChild | None:
        """A whole message of those received. Raises Lost."""
        if len(self.received) < LENGTH.size:
            return None
        end = LENGTH.size + LENGTH.unpack_from(self.received)[0]
        if len(self.received) < end:
            return None
        content = bytes(self.received[LENGTH.size : end])
        del self.received[:end]
        try:
            message: FromChild = decode_from_child(content)
        except msgspec.DecodeError:
            raise Lost("its process sent what is no message") from None
        return message


class Nursery:
    """Makes processes for rules, from one that is started with the first of them. Thread-safe."""

    def __init__(self, facts: ModelFacts) -> None:
        self._facts = facts
        self._lock = threading.Lock()
        self._control: socket.socket | None = None
        self._parent: subprocess.Popen[bytes] | None = None
        self._is_closed = False

    def bear(self) -> RuleProcess:
        """Raises OSError."""
        ours, theirs = socket.socketpair()
        with theirs, self._lock:
            if self._is_closed:
                raise OSError("the engine is shutting down")
            if self._parent is None or self._parent.poll() is not None:
                self._start()
            self._send(Fork(), theirs.fileno())
        ours.setblocking(False)
        return RuleProcess(ours)

    def end(self, process: RuleProcess) -> None:
        """At once, whatever it does."""
        process.line.close()
        if process.pid is not None:
            self.tell(End(process.pid))

    def tell(self, command: Command) -> None:
        """What a nursery that is gone is told is lost, as its children are."""
        with self._lock, suppress(OSError):
            self._send(command)

    def shutdown(self) -> None:
        """End it, and all that it made with it."""
        with self._lock:
            if self._control is not None and self._parent is not None:
                self._control.close()
                try:
                    self._parent.wait(_END_LIMIT_S)
                except subprocess.TimeoutExpired:
                    self._parent.kill()
                    self._parent.wait()
            self._control = self._parent = None
            self._is_closed = True

    def _start(self) -> None:
        if self._control is not None:
            self._control.close()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            code = _CODE.format(path=sys.path)
            self._parent = subprocess.Popen(
                [sys.executable, "-c", code, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.PIPE,
                start_new_session=True,
                env={**os.environ, **_ONE_THREAD},
            )
        assert self._parent.stdin is not None
        with self._parent.stdin as pipe:
            pickle.dump(self._facts, pipe)

    def _send(self, command: Command, *descriptors: int) -> None:
        if self._control is not None:
            socket.send_fds(self._control, [encoded(command)], descriptors)


def exchange(questions: Mapping[RuleProcess, bytes], limit_s: float) -> dict[RuleProcess, FromChild | Lost]:
    """Send each its frame and wait for a message from each; all of them have the same time."""
    answers: dict[RuleProcess, FromChild | Lost] = {}
    unsent = {process: memoryview(frame) for process, frame in questions.items()}
    end_s = time.monotonic() + limit_s
    with selectors.DefaultSelector() as selector:
        for process in questions:
            selector.register(process.line, selectors.EVENT_READ | selectors.EVENT_WRITE, process)
        while len(answers) < len(questions) and (left_s := end_s - time.monotonic()) > 0:
            for key, events in selector.select(left_s):
                _move(key.data, events, unsent, answers, selector)
    late = Late(f"it took longer than {limit_s:g} s")
    return {process: answers.get(process, late) for process in questions}


def _move(
    process: RuleProcess,
    events: int,
    unsent: dict[RuleProcess, memoryview],
    answers: dict[RuleProcess, FromChild | Lost],
    selector: selectors.BaseSelector,
) -> None:
    """Read and write what a process's line takes; once it has answered it is looked at no more."""
    found = _moved(process, events, unsent)
    if found is not None:
        answers[process] = found
        selector.unregister(process.line)
    elif events & selectors.EVENT_WRITE and not unsent[process]:
        selector.modify(process.line, selectors.EVENT_READ, process)


def _moved(
    process: RuleProcess, events: int, unsent: dict[RuleProcess, memoryview]
) -> FromChild | Lost | None:
    """What came of a process whose line can be read or written."""
    try:
        if events & selectors.EVENT_WRITE and unsent[process]:
            num_sent = process.line.send(unsent[process])
            unsent[process] = unsent[process][num_sent:]
        if events & selectors.EVENT_READ:
            content = process.line.recv(_READ_BYTES)
            if not content:
                return Lost("its process ended")
            process.received += content
        return process.take()
    except (BlockingIOError, InterruptedError):
        return None
    except Lost as lost:
        return lost
    except OSError as error:
        return Lost(f"its process ended ({error.strerror})")
