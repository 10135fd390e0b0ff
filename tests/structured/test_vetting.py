"""A grammar is tried out at nobody else's cost, and refused once it has used up what it may."""

from __future__ import annotations

import math
import os
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from llguidance import LLTokenizer

from noria.structured import vetting, wire
from noria.structured.reading import source_of
from noria.structured.vetting import Vetting
from support_processes import until

SLOW = "start: " + " | ".join(f'"{number * 7919 % 1000003:x}{number:x}"' for number in range(60_000))


class Bench:
    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair()
        self.line = wire.Channel(self._ours, wire.Vetted)
        self.theirs = wire.Channel(theirs, wire.Vet)
        self.vetting = Vetting(LLTokenizer("byte"), self.theirs)
        self._num_asked = 0
        self._sender = ThreadPoolExecutor(1)  # what is long is sent while it is received

    def ask(self, kind: str, text: str, tenant: str = "") -> int:
        self._num_asked += 1
        self._sender.submit(self.line.send, wire.Vet(self._num_asked, kind, text, None, "", tenant))
        return self._num_asked

    def all_sent(self) -> None:
        self._sender.submit(lambda: None).result()

    def close(self) -> None:
        self._sender.shutdown()
        self.line.close()

    def verdict(self) -> wire.Vetted:
        while not self.line.has_news(0.0):
            self.vetting._step()
        told: wire.Vetted = self.line.receive()
        return told


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.close()
    with pytest.raises(EOFError):  # the engine is gone
        made.vetting.serve()
    made.theirs.close()


def test_a_good_grammar_comes_back_in_the_words_that_it_is_followed_by(bench: Bench) -> None:
    assert bench.ask("choice", '["a", "b"]') == 1
    assert bench.verdict() == wire.Vetted(1, source_of("choice", '["a", "b"]'), is_slow=False)


def test_a_bad_grammar_comes_back_with_what_is_wrong_with_it(bench: Bench) -> None:
    bench.ask("regex", "(a")
    told = bench.verdict()
    assert told.source == ""
    assert "unclosed" in str(told.error)


def test_what_takes_too_much_of_a_processor_is_refused_and_leaves_no_process(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vetting, "CPU_LIMIT_S", 1)
    bench.ask("lark", SLOW)
    while not bench.vetting._trials:
        bench.vetting._step()
    (trial,) = bench.vetting._trials
    assert bench.verdict().error == "it takes more than 1 s of a processor to read"
    with pytest.raises(ChildProcessError):
        os.waitpid(trial.pid, os.WNOHANG)


def test_what_takes_too_much_memory_is_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    # At once, so that no memory that this process has left over can serve for it.
    monkeypatch.setattr(vetting, "compile_grammar", lambda *_: bytearray(3 << 30))
    bench.ask("choice", '["a"]')
    assert bench.verdict().error == "it takes more than 2 GiB to read, or cannot be read at all"


class Time:
    """As vetting has it: it passes when a test says so."""

    process_time = staticmethod(time.process_time)

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.mark.parametrize("tenant", ["modest", "greedy"])
def test_slow_grammars_keep_no_quick_one_waiting(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tenant: str
) -> None:
    reads, writes = os.pipe()
    compile_grammar = vetting.compile_grammar

    def compile_when_told(vocabulary: LLTokenizer, source: str) -> object:
        return os.read(reads, 1) if "slow" in source else compile_grammar(vocabulary, source)

    monkeypatch.setattr(vetting, "compile_grammar", compile_when_told)
    monkeypatch.setattr(vetting, "time", clock := Time())
    slow = {bench.ask("choice", '["slow"]', "greedy") for _ in range(3)}
    bench.all_sent()
    while sum(trial.is_slow for trial in bench.vetting._trials) < len(slow):
        bench.vetting._step()
        clock.now_s += 1.0
        assert clock.now_s < 100
    quick = [bench.ask("regex", f"a{number}", tenant) for number in range(3)]
    assert {bench.verdict().serial for _ in quick} == set(quick)
    os.write(writes, b"123")
    assert {bench.verdict().serial for _ in slow} == slow
    for end in reads, writes:
        os.close(end)


def test_tenants_take_turns(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vetting, "_QUICK_WALL_S", math.inf)
    monkeypatch.setattr(vetting, "_MAX_QUICK", 0)  # none begins before all are there
    asked = [bench.ask("regex", "a", tenant) for tenant in ("many", "many", "many", "few")]
    bench.all_sent()
    for _ in asked:
        bench.vetting._step()  # takes one in
    monkeypatch.setattr(vetting, "_MAX_QUICK", 1)
    assert bench.vetting._begin_next()
    assert [bench.verdict().serial for _ in asked] == [asked[0], asked[3], asked[1], asked[2]]


def test_what_waits_for_what_never_comes_is_refused_before_its_time_is_over(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, writes = os.pipe()
    waits, reached = os.pipe()

    def wait_for_ever(vocabulary: LLTokenizer, source: str) -> object:
        os.write(reached, b"x")
        return os.read(reads, 1)

    monkeypatch.setattr(vetting, "compile_grammar", wait_for_ever)
    monkeypatch.setattr(vetting, "time", clock := Time())
    bench.ask("choice", '["a"]')
    while not bench.vetting._trials:
        bench.vetting._step()
    os.read(waits, 1)
    (trial,) = bench.vetting._trials
    until(lambda: vetting._is_asleep(trial.pid))
    while not trial.given_up:  # and no longer: that it ends takes time of its own
        bench.vetting._step()
        clock.now_s += 1.0
        assert clock.now_s < vetting._WALL_LIMIT_S
    assert bench.verdict().error == "it takes more than 2 GiB to read, or cannot be read at all"
    for end in reads, writes, waits, reached:
        os.close(end)


def test_what_computes_has_all_its_time(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def compute_for_ever(vocabulary: LLTokenizer, source: str) -> object:
        while True:
            pass

    monkeypatch.setattr(vetting, "CPU_LIMIT_S", 1000)
    monkeypatch.setattr(vetting, "compile_grammar", compute_for_ever)
    monkeypatch.setattr(vetting, "time", clock := Time())
    bench.ask("choice", '["a"]')
    while not bench.vetting._trials:
        bench.vetting._step()
    while clock.now_s < vetting._WALL_LIMIT_S:
        assert not bench.line.has_news(0.0)
        clock.now_s += 6.0
        bench.vetting._step()
    clock.now_s += 1.0
    assert bench.verdict().error == "it could not be read within 120 s"
