from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from benchmarks.peers.children import ChildFailed, child, descendants, resident_bytes, run, wait_until

# Starts a grandchild that ignores SIGTERM, says its id, and waits.
PARENT = """
import subprocess, sys
code = "import signal, sys; signal.signal(15, signal.SIG_IGN); print('up', flush=True); sys.stdin.read()"
grandchild = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
grandchild.stdout.readline()
print(grandchild.pid, flush=True)
sys.stdin.read()
"""


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@contextmanager
def family() -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A child and the id of what it started."""
    with child([sys.executable, "-c", PARENT], subprocess.DEVNULL, os.environ, talks=True) as process:
        assert process.stdout is not None
        yield process, int(process.stdout.readline())


def test_a_child_and_all_that_it_started_have_ended_when_the_block_is_left() -> None:
    with family() as (process, grandchild):
        assert descendants(process.pid) == [grandchild]
        assert is_there(grandchild)
    assert process.returncode == -signal.SIGTERM
    assert not is_there(grandchild)


def test_they_end_on_ctrl_c_as_well() -> None:
    with pytest.raises(KeyboardInterrupt), family() as (process, grandchild):
        raise KeyboardInterrupt
    assert process.returncode == -signal.SIGTERM
    assert not is_there(grandchild)


def test_memory_counts_the_whole_family() -> None:
    with family() as (process, grandchild):
        assert resident_bytes(process.pid) > resident_bytes(grandchild) > 1_000_000


def test_a_command_leaves_its_output_in_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    run([sys.executable, "-c", "print('hello')"], log, lambda _: None)
    assert log.read_text().splitlines()[-1] == "hello"
    assert log.read_text().startswith(f"\n$ {sys.executable} -c print")


def test_a_command_that_fails_says_so_with_the_end_of_its_output(tmp_path: Path) -> None:
    with pytest.raises(ChildFailed, match=r"(?s)ended with status 3, see .*log: .*no room"):
        run([sys.executable, "-c", "print('no room'); raise SystemExit(3)"], tmp_path / "log", lambda _: None)


def test_waiting_ends_when_the_process_does() -> None:
    with child([sys.executable, "-c", ""], subprocess.DEVNULL) as process:
        assert not wait_until(lambda: False, process, limit_s=60)
        assert wait_until(lambda: True, process, limit_s=60)
