"""Tries grammars out before anything else sees them: each in a process of its own, which its grammar may use up.

Nothing can end a thread that reads a hostile grammar, and what it does costs everybody's masks; a process has limits
that the system keeps, and another one's priority.
"""

from __future__ import annotations

import os
import resource
import selectors
import signal
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec
from llguidance import LLMatcher, LLTokenizer

from noria.structured import wire
from noria.structured.faults import GrammarFault
from noria.structured.followers import Offering
from noria.structured.reading import STRUCTURAL_TAG, compile_grammar, source_of, without_place

CPU_LIMIT_S = 5  # of a processor
_WALL_LIMIT_S = 120.0  # which it may take to get that much of one
_ASLEEP_LIMIT_S = 10.0  # of waiting for something: reading waits for nothing but a processor
_MEMORY_BYTES = 2 << 30
_UNREADABLE = f"it takes more than {_MEMORY_BYTES >> 30} GiB to read, or cannot be read at all"
_MAX_QUICK = 2  # trials at a time
_MAX_SLOW = (
    2  # that go on at a time: others that turn out slow stand still meanwhile, and quick ones pass them
)
_MAX_TRIALS = 32
_MAX_TRIALS_OF_ONE = 8  # tenant
_LOOK_EVERY_S = 0.05
_QUICK_S = 0.1  # of a processor; what takes longer is put behind everything else
_QUICK_WALL_S = 0.3
_STAYS_S = 0.5  # of a processor; what took longer to read is not read again
_NICENESS = 3
_SLOW_NICENESS = 10


@dataclass(slots=True)
class _Trial:
    """A grammar in its process. reads: the end of the pipe that it tells its verdict by. awake_s: when it was last seen
    to be. given_up: why it was ended.
    """

    vet: wire.Vet
    pid: int
    reads: int
    started_s: float
    awake_s: float
    told: bytearray = field(default_factory=bytearray)
    is_slow: bool = False
    is_stopped: bool = False
    given_up: str = ""

    def signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)


class Vetting:
    """Single-threaded, so that it can fork. Tenants take turns. special: as `reading.source_of` takes them.

    offering: made in a trial, through which it stays with a grammar that took long; None: none does.
    """

    def __init__(
        self,
        vocabulary: LLTokenizer,
        channel: wire.Channel,
        special: Mapping[str, int] | None = None,
        offering: Callable[[], Offering] | None = None,
    ) -> None:
        self._offering = offering
        self._vocabulary = vocabulary
        self._special = special or {}
        self._channel = channel
        self._waiting: dict[str, deque[wire.Vet]] = {}  # by tenant, who has waited longest for a turn first
        self._trials: list[_Trial] = []
        self._settled: list[int] = []  # processes of trials that have told their verdict; some of them stay
        self._selector = selectors.DefaultSelector()
        self._selector.register(channel.fileno(), selectors.EVENT_READ)

    def serve(self) -> None:
        """Raises EOFError when the engine is gone; nothing that was begun stays."""
        try:
            while True:
                self._step()
        finally:
            for trial in self._trials:
                trial.signal(signal.SIGKILL)

    def _step(self) -> None:
        self._settled = [pid for pid in self._settled if os.waitpid(pid, os.WNOHANG)[0] == 0]
        ready = {key.fd for key, _ in self._selector.select(_LOOK_EVERY_S if self._trials else None)}
        if self._channel.fileno() in ready:
            vet: wire.Vet = self._channel.receive()
            self._waiting.setdefault(vet.tenant, deque()).append(vet)
        for trial in list(self._trials):
            if trial.reads in ready:
                self._read(trial)
            else:
                self._look(trial)
        self._choose_slow()
        while self._begin_next():
            pass

    def _begin_next(self) -> bool:
        num_quick = sum(not trial.is_slow for trial in self._trials)
        if num_quick >= _MAX_QUICK or len(self._trials) >= _MAX_TRIALS:
            return False
        for tenant, waiting in self._waiting.items():
            if sum(trial.vet.tenant == tenant for trial in self._trials) < _MAX_TRIALS_OF_ONE:
                vet = waiting.popleft()
                del self._waiting[tenant]
                if waiting:
                    self._waiting[tenant] = waiting  # behind the others
                self._begin(vet)
                return True
        return False

    def _begin(self, vet: wire.Vet) -> None:
        reads, writes = os.pipe()
        try:
            pid = os.fork()
        except OSError as error:
            os.close(reads)
            os.close(writes)
            self._channel.send(wire.Vetted(vet.serial, error=f"no process could be started for it: {error}"))
            return
        if pid == 0:
            self._channel.close_here()
            os.close(reads)
            _try_out(self._vocabulary, self._special, vet, writes, self._offering)
        os.close(writes)
        now_s = time.monotonic()
        self._trials.append(_Trial(vet, pid, reads, started_s=now_s, awake_s=now_s))
        self._selector.register(reads, selectors.EVENT_READ)

    def _read(self, trial: _Trial) -> None:
        chunk = os.read(trial.reads, 1 << 20)
        trial.told += chunk
        if not chunk:
            self._end(trial)

    def _look(self, trial: _Trial) -> None:
        now_s = time.monotonic()
        passed_s = now_s - trial.started_s
        if passed_s > _QUICK_WALL_S and not _is_asleep(trial.pid):
            trial.awake_s = now_s
        if passed_s > _WALL_LIMIT_S:
            trial.given_up = f"it could not be read within {_WALL_LIMIT_S:g} s"
            trial.signal(signal.SIGKILL)
        elif now_s - trial.awake_s > _ASLEEP_LIMIT_S:  # as of a lock that a thread left which got no memory
            trial.given_up = _UNREADABLE
            trial.signal(signal.SIGKILL)
        elif passed_s > _QUICK_WALL_S and not trial.is_slow:
            trial.is_slow = True
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, trial.pid, _SLOW_NICENESS)

    def _choose_slow(self) -> None:
        """Those that began first go on."""
        for place, trial in enumerate(trial for trial in self._trials if trial.is_slow):
            is_stopped = place >= _MAX_SLOW
            if is_stopped != trial.is_stopped:
                trial.is_stopped = is_stopped
                trial.signal(signal.SIGSTOP if is_stopped else signal.SIGCONT)

    def _end(self, trial: _Trial) -> None:
        """It has told all that it will."""
        self._trials.remove(trial)
        if trial.is_stopped:  # just when it had told
            trial.signal(signal.SIGCONT)
        self._selector.unregister(trial.reads)
        os.close(trial.reads)
        try:
            vetted = wire.decode_vetted(trial.told)
        except msgspec.DecodeError:  # it ended before it knew
            vetted = wire.Vetted(trial.vet.serial, error=self._fault_of(trial))
        else:
            self._settled.append(trial.pid)
        self._channel.send(vetted)

    def _fault_of(self, trial: _Trial) -> str:
        status = os.waitpid(trial.pid, 0)[1]
        ended_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        if trial.given_up:
            return trial.given_up
        if ended_by in (signal.SIGXCPU, signal.SIGKILL):
            return f"it takes more than {CPU_LIMIT_S} s of a processor to read"
        return _UNREADABLE


def _try_out(
    vocabulary: LLTokenizer,
    special: Mapping[str, int],
    vet: wire.Vet,
    writes: int,
    offering: Callable[[], Offering] | None,
) -> None:
    """In the new process, which ends here, once nobody needs what it has read."""
    try:
        os.setpriority(os.PRIO_PROCESS, 0, _NICENESS)
        most = resource.getrlimit(resource.RLIMIT_CPU)[1]  # which a process that stays goes on to
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_LIMIT_S, most))
        most_bytes = _data_bytes() + _MEMORY_BYTES
        resource.setrlimit(resource.RLIMIT_DATA, (most_bytes, most_bytes))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        offered = offering() if offering is not None else None  # while its priority is what it begins with
        vetted, compiled = _verdict(vocabulary, special, vet)
        is_long = time.process_time() > _STAYS_S
        if offered is not None and not (is_long and compiled and offered.offer(vetted.source, compiled)):
            offered = None
        content = memoryview(wire.encode(vetted))
        while content:
            content = content[os.write(writes, content) :]
        os.close(writes)
        if offered is not None:
            offered.serve()
    finally:
        os._exit(0)


def _verdict(
    vocabulary: LLTokenizer, special: Mapping[str, int], vet: wire.Vet
) -> tuple[wire.Vetted, LLMatcher | None]:
    """And the grammar, read."""
    try:
        source = source_of(vet.kind, vet.text, vet.prologue, vet.begins_not, special)
    except GrammarFault as fault:
        return wire.Vetted(vet.serial, error=str(fault)), None
    try:
        compiled = compile_grammar(vocabulary, source)
    except GrammarFault as fault:
        told = without_place(str(fault)) if vet.kind == STRUCTURAL_TAG else str(fault)
        return wire.Vetted(vet.serial, error=told), None
    return wire.Vetted(vet.serial, source, is_slow=time.process_time() > _QUICK_S), compiled


def _is_asleep(pid: int) -> bool:
    """Whether its first thread, which reads the grammar, neither runs nor could."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(") ")[2].startswith("S")
    except OSError:  # it has ended
        return False


def _data_bytes() -> int:
    """That this process has to begin with."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[5]) * resource.getpagesize()
