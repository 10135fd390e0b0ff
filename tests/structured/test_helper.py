"""With the grammar process ends whatever it has begun."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from noria.structured.helper import GrammarProcess
from support_processes import is_alive, until

# As structured.process, with a child that hears of no channel that is closed, and tells its id.
HANGING = """
import os, signal, socket, sys
from noria.structured import wire

os.setpgid(0, 0)
if os.fork() == 0:
    control = wire.Channel(socket.socket(fileno=int(sys.argv[3])), wire.Command)
    control.send(wire.Prepared(os.getpid()))
while True:
    signal.pause()
"""


def test_what_it_has_forked_ends_with_it_though_it_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, script = tmp_path / "hanging", tmp_path / "hanging.py"
    script.write_text(HANGING)
    # By a shell: the path of an interpreter may be one that a script's first line cannot name.
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {shlex.quote(str(script))} "$@"\n')
    program.chmod(0o700)
    monkeypatch.setattr("noria.structured.helper.sys.executable", str(program))
    process = GrammarProcess()
    child = process.control.receive().serial
    assert is_alive(child)
    process.end()
    until(lambda: not is_alive(child))
    process.end()  # once more does no harm
