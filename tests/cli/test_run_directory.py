"""What the processes of a server share is theirs alone, stays as long as they do, and is gone with them."""

from __future__ import annotations

import fcntl
import os
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from noria.cli.run_directory import run_directory
from noria.config.errors import ConfigError
from support_processes import until


def test_it_is_for_this_user_alone_and_gone_afterwards() -> None:
    with run_directory() as path:
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o700
        (Path(path) / "facts").write_text("some")
    assert not os.path.exists(path)


def test_it_is_locked_against_clean_ups() -> None:
    with run_directory() as path:
        descriptor = os.open(path, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(descriptor)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that temporary files go to."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


KILLED = """
import os, signal, sys
from noria.cli.run_directory import run_directory
with run_directory() as path:
    open(path + "/facts-1", "w").close()
    if os.fork() == 0:
        signal.pause()  # a process of the server, which outlives it by a little
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_server_left_behind_goes_at_the_next_start_once_all_its_processes_are_gone(
    temporary: Path,
) -> None:
    environment = {**os.environ, "TMPDIR": str(temporary)}
    killed = subprocess.Popen([sys.executable, "-c", KILLED], env=environment, start_new_session=True)
    assert killed.wait(60) == -signal.SIGKILL
    [left] = temporary.iterdir()
    with run_directory():
        assert left.is_dir()  # its other process may still use it
    os.killpg(killed.pid, signal.SIGKILL)
    until(lambda: not is_locked(left))
    with run_directory() as path:
        assert [found.name for found in temporary.iterdir()] == [os.path.basename(path)]
    assert list(temporary.iterdir()) == []


def is_locked(path: Path) -> bool:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def test_nothing_but_directories_of_servers_is_swept(temporary: Path) -> None:
    (temporary / "elsewhere").mkdir()
    (temporary / "elsewhere" / "file").write_text("kept")
    (temporary / "noria-run-link").symlink_to(temporary / "elsewhere")
    (temporary / "noria-run-file").write_text("kept")
    (temporary / "noria-model-x").mkdir()
    before = sorted(temporary.iterdir())
    with run_directory():
        pass
    assert sorted(temporary.iterdir()) == before
    assert (temporary / "elsewhere" / "file").read_text() == "kept"


def test_two_servers_that_start_leave_each_other_alone(temporary: Path) -> None:
    with run_directory() as first, run_directory() as second:
        assert {os.path.basename(first), os.path.basename(second)} == {p.name for p in temporary.iterdir()}


def test_a_path_too_long_for_sockets_is_refused_and_left_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with (
        pytest.raises(ConfigError, match=r"the system takes 83; set TMPDIR to a shorter one"),
        run_directory(),
    ):
        pass
    assert not list(long.iterdir())


def test_nowhere_to_write_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with (
        pytest.raises(ConfigError, match="set TMPDIR to a directory that can be written to"),
        run_directory(),
    ):
        pass
