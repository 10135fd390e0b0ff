"""Child processes: started in sessions of their own, watched, and ended by their own ids together with theirs."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

PATIENCE_S = 10.0
_POLL_S = 0.2
_PROC = Path("/proc")


class ChildFailed(Exception):
    """A command ended with a status other than 0; the message has the end of its output."""


def run(
    command: Sequence[str],
    log: Path,
    on_tick: Callable[[str], None],
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> None:
    """Run to the end with its output added to `log`; on_tick gets the last line now and then. Raises ChildFailed."""
    with log.open("ab") as sink:
        sink.write(("\n$ " + " ".join(command) + "\n").encode())
        sink.flush()
        with child(command, sink.fileno(), environment, directory) as process:
            while not _ended(process):
                on_tick(last_line(log))
    if process.returncode != 0:
        raise ChildFailed(f"{command[0]} ended with status {process.returncode}, see {log}: {tail(log)}")


@contextmanager
def child(
    command: Sequence[str],
    output: int,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
    talks: bool = False,
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that has ended when the block is left, however that happens.

    output: file descriptor for its errors, and for its standard output unless it `talks` through pipes.
    """
    process = subprocess.Popen(
        list(command),
        stdin=subprocess.PIPE if talks else subprocess.DEVNULL,
        stdout=subprocess.PIPE if talks else output,
        stderr=output,
        env=dict(environment) if environment is not None else None,
        cwd=directory,
        start_new_session=True,  # the terminal's Ctrl-C is for us alone; we end the child
    )
    try:
        yield process
    finally:
        with _undisturbed():
            end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """Ask it to end, insist after PATIENCE_S; then the same for what it had started and left behind."""
    family = {pid: _born(pid) for pid in descendants(process.pid)}
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    _kill(family)
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def _kill(family: Mapping[int, str | None]) -> None:
    """End what is left of these ids and wait for it. An id may be another process's by now: its birth tells."""
    deadline_s = time.monotonic() + PATIENCE_S
    left = [pid for pid, born in family.items() if born is not None and _born(pid) == born]
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    while time.monotonic() < deadline_s and any(_born(pid) == family[pid] for pid in left):
        time.sleep(0.005)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """A second Ctrl-C must not leave a process behind."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def descendants(pid: int) -> list[int]:
    """Children, their children and so on, of a process that may have ended."""
    parents: dict[int, list[int]] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found = list(parents.get(pid, ()))
    for child_pid in found:
        found += parents.get(child_pid, ())
    return found


def resident_bytes(pid: int) -> int:
    """Memory of a process and its descendants; a page that several share counts once in all (PSS)."""
    return sum(_proportional_bytes(member) for member in (pid, *descendants(pid)))


def _proportional_bytes(pid: int) -> int:
    try:
        lines = (_PROC / str(pid) / "smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the state on (the name before it may hold anything); [] if it is gone."""
    try:
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _born(pid: int) -> str | None:
    fields = _stat(pid)
    return fields[19] if fields and fields[0] != "Z" else None


def _ended(process: subprocess.Popen[bytes]) -> bool:
    """Wait a moment for it."""
    try:
        process.wait(_POLL_S)
    except subprocess.TimeoutExpired:
        return False
    return True


def wait_until(is_true: Callable[[], bool], process: subprocess.Popen[bytes], limit_s: float) -> bool:
    """Ask every few milliseconds; False if the process ended or the time was over first."""
    deadline_s = time.monotonic() + limit_s
    while not is_true():
        if process.poll() is not None or time.monotonic() > deadline_s:
            return False
        time.sleep(0.005)
    return True


def last_line(log: Path) -> str:
    lines = tail(log, 2000).splitlines()
    return lines[-1] if lines else ""


def tail(log: Path, num_bytes: int = 1000) -> str:
    with log.open("rb") as source:
        source.seek(max(0, log.stat().st_size - num_bytes))
        return source.read().decode(errors="replace").strip()
