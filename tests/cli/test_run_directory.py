"""What the processes of a server share is theirs alone, stays as long as they do, and is gone with them."""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
from pathlib import Path

import pytest

from noria.cli.run_directory import run_directory
from noria.config.errors import ConfigError


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
