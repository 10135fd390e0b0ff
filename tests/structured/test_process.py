"""What makes grammars ready goes on, whatever a grammar does to it."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from noria.structured import wire
from noria.structured.process import Preparer


class Panic(BaseException):
    """As llguidance raises one."""


class Failing:
    """As much of structured.followers.Sequences as is asked here."""

    def prepare(self, command: wire.Prepare) -> str | None:
        if command.source == "bad":
            raise Panic
        return None


@pytest.mark.parametrize("is_slow", [True, False])
def test_a_thread_that_makes_grammars_ready_survives_whatever_one_of_them_raises(
    is_slow: bool, caplog: pytest.LogCaptureFixture
) -> None:
    ours, theirs = socket.socketpair()
    line = wire.Channel(ours, wire.Prepared)
    sequences: Any = Failing()
    preparer = Preparer(sequences, wire.Channel(theirs, wire.Command))
    bad = range(wire.NUM_QUICK)  # as many as there are threads
    for serial in bad:
        preparer.add(wire.Prepare(serial, "bad", is_slow, {"a": ()}))
    told = [line.receive() for _ in bad]
    assert {one.serial for one in told} == set(bad)
    assert {one.error for one in told} == {"it could not be made ready: Panic"}
    assert len(caplog.records) == len(bad)
    preparer.add(wire.Prepare(9, "good", is_slow, {"b": ()}))
    assert line.receive() == wire.Prepared(9)
    line.close()
