"""The processes of a server start together, come back when they end, and end together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import support_supervised
from support_processes import until


class Supervised:
    def __init__(self, *settings: str) -> None:
        path = Path(support_supervised.__file__)
        self.process = subprocess.Popen(
            [sys.executable, str(path), *settings],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.pids: dict[str, int] = {}

    def started(self, *names: str) -> None:
        """Wait until processes of these names have started."""
        for _ in names:
            name, pid = self.line().split()
            self.pids[name] = int(pid)
        assert set(names) <= set(self.pids)

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def is_there(self, name: str) -> bool:
        try:
            os.kill(self.pids[name], 0)
        except ProcessLookupError:
            return False
        return True

    def exit_code(self) -> int:
        return self.process.wait(timeout=60)

    def logged(self, words: str) -> None:
        """Wait until the log has a line with these words."""
        assert self.process.stderr is not None
        assert any(words in line for line in self.process.stderr)

    def errors(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read()


@contextmanager
def supervised(*settings: str) -> Iterator[Supervised]:
    running = Supervised(*settings)
    try:
        yield running
    finally:
        running.process.kill()
        running.process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_at_a_signal_what_drains_ends_first_and_the_status_is_0(number: signal.Signals) -> None:
    with supervised() as server:
        server.started("engine", "api")
        server.process.send_signal(number)
        assert [server.line(), server.line()] == ["api drains", "engine quits"]
        assert server.exit_code() == 0


def test_a_terminal_that_hangs_up_on_all_of_them_ends_them_in_order_too() -> None:
    with supervised() as server:
        server.started("engine", "api")
        for pid in (*server.pids.values(), server.process.pid):
            os.kill(pid, signal.SIGHUP)
        assert [server.line(), server.line()] == ["api drains", "engine quits"]
        assert server.exit_code() == 0


def test_a_second_signal_ends_everything_at_once() -> None:
    with supervised("api-stays") as server:
        server.started("engine", "api")
        server.process.send_signal(signal.SIGTERM)
        assert server.line() == "api drains"
        server.process.send_signal(signal.SIGTERM)
        assert {server.line(), server.line()} == {"api quits", "engine quits"}
        assert server.exit_code() == 128 + signal.SIGTERM


@pytest.mark.parametrize("name", ["engine", "api"])
def test_what_is_killed_comes_back_and_the_other_stays(name: str) -> None:
    with supervised() as server:
        server.started("engine", "api")
        before = dict(server.pids)
        os.kill(server.pids[name], signal.SIGKILL)
        server.started(name)
        assert server.pids[name] != before[name]
        other = "api" if name == "engine" else "engine"
        assert server.is_there(other)
        assert server.pids[other] == before[other]
        server.process.terminate()
        assert server.exit_code() == 0
        assert (
            f"the {name} process was ended by SIGKILL (the system does that when memory runs out)"
            in server.errors()
        )


def test_a_signal_ends_the_rest_at_once_while_what_drains_waits_to_be_started_again() -> None:
    with supervised("api-rests") as server:
        server.started("engine", "api")
        os.kill(server.pids["api"], signal.SIGKILL)
        server.logged("starting another")
        server.process.terminate()
        assert server.line() == "engine quits"
        assert server.exit_code() == 0


def test_what_hangs_is_ended_and_comes_back() -> None:
    with supervised("engine-hangs") as server:
        server.started("engine", "api")
        server.started("engine")
        server.process.terminate()
        assert server.exit_code() == 0
        assert "the engine process hangs; ending it" in server.errors()


def test_what_does_not_come_up_in_time_at_the_first_start_ends_the_server() -> None:
    with supervised("engine-sticks") as server:
        assert server.exit_code() == 1
        errors = server.errors()
        assert "the engine process is not up after 0." in errors
        assert "noria serve: the engine process was ended by SIGKILL as it started" in errors
        assert "memory runs out" not in errors


def test_what_does_not_come_up_in_time_later_is_ended_and_started_again() -> None:
    with supervised("engine-sticks-again") as server:
        server.started("engine", "api")
        os.kill(server.pids["engine"], signal.SIGKILL)
        server.started("engine")
        stuck = server.pids["engine"]
        server.started("engine")
        assert server.pids["engine"] != stuck
        server.process.terminate()
        assert server.exit_code() == 0


@pytest.mark.parametrize(("setting", "word"), [("engine-fails", "engine"), ("api-fails", "api")])
def test_a_failure_at_the_start_ends_everything_and_is_told_once(setting: str, word: str) -> None:
    with supervised(setting) as server:
        assert server.exit_code() == 2
        assert server.errors().count(f"noria serve: {word} cannot work") == 1


def test_the_same_failure_of_both_is_told_once() -> None:
    with supervised("engine-fails", "api-fails") as server:
        assert server.exit_code() == 2
        assert server.errors().count("cannot work") == 1


def test_what_cannot_come_back_ends_the_server_with_a_reason() -> None:
    with supervised("engine-fails-again") as server:
        server.started("engine", "api")
        os.kill(server.pids["engine"], signal.SIGKILL)
        assert server.exit_code() == 1
        errors = server.errors()
        assert "the engine process: noria serve: engine cannot work" in errors
        assert "cannot be started again" in errors


def test_nothing_outlives_a_supervisor_that_is_killed() -> None:
    with supervised() as server:
        server.started("engine", "api")
        server.process.kill()
        until(lambda: not any(map(server.is_there, server.pids)))
