"""A grammar that took long to read is read once: the process that has read it makes the masks."""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from llguidance import LLTokenizer

from noria.structured import followers, matchers, vetting, wire
from noria.structured.followers import Followers, Offering, Sequences, handover
from noria.structured.mask_memory import MaskMemory, open_memory
from noria.structured.matchers import Matchers
from noria.structured.reading import source_of
from noria.structured.vetting import Vetting
from support_processes import LIMIT_S, is_alive, until

SOURCE = source_of("regex", "[ab]x*")
OTHER = source_of("regex", "[cd]y*")


class Bench:
    """A grammar process and what tries grammars out for it, in this one."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self.offers, self.taken = handover()
        self.line, self.theirs = wire.Channel(ours, wire.Vetted), wire.Channel(theirs, wire.Vet)
        vocabulary = LLTokenizer("byte")
        self.vetting = Vetting(vocabulary, self.theirs, offering=lambda: Offering(vocabulary, self.offers))
        self.local = Matchers(vocabulary)
        self.memory = MaskMemory(open_memory(), self.local.row_bytes)
        self.memory.grow(8)
        self.sequences = Sequences(self.local, Followers(self.taken, self.local.row_bytes))
        self.pids: list[int] = []

    def vet(self, pattern: str) -> wire.Vetted:
        self.line.send(wire.Vet(1, "regex", pattern, None, "", ""))
        while not self.line.has_news(0.0):
            self.vetting._step()
        self.pids += [pid for pid in self.vetting._settled if pid not in self.pids]
        told: wire.Vetted = self.line.receive()
        return told

    def prepare(self, source: str, outputs: dict[str, tuple[int, ...]], is_slow: bool = True) -> str | None:
        return self.sequences.prepare(wire.Prepare(1, source, is_slow, outputs))

    def allowed(self, **news: str) -> dict[str, str]:
        """What each may choose behind its news, as the rows of memory say."""
        asked = wire.Fill(2, {name: tuple(text.encode()) for name, text in news.items()})
        filled = self.sequences.fill(asked, self.memory)
        assert filled.errors == {}
        rows = self.memory.rows(8)
        told = {}
        for row, name in enumerate(news, 2):
            bits = rows[row * self.local.row_bytes : (row + 1) * self.local.row_bytes]
            told[name] = "".join(chr(i) for i in range(128) if bits[i // 8] >> i % 8 & 1)
        return {name: text for name, text in told.items() if name not in filled.unknown + filled.late}


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setattr(vetting, "_STAYS_S", -1.0)  # whatever is read counts as having taken long
    for limit in "_PATIENCE_S", "_ANSWER_LIMIT_S":
        monkeypatch.setattr(followers, limit, LIMIT_S)  # a slow machine's children answer, too
    # What an earlier test's model left must not be collected in a child, which has none of its threads.
    gc.collect()
    gc.freeze()
    made = Bench()
    yield made
    gc.unfreeze()
    for follower in made.sequences._followers._kept.values():
        follower.end()
    for pid in made.pids:
        until(lambda pid=pid: not is_alive(pid))
    for pid in made.vetting._settled:
        os.waitpid(pid, 0)
    made.line.close()
    made.theirs.close()
    made.offers.close()
    made.taken.close()


def compiled_here(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The grammars that are compiled in this process from now on."""
    seen: list[str] = []
    real = matchers.compile_grammar

    def compile_grammar(vocabulary: LLTokenizer, source: str) -> Any:
        seen.append(source)
        return real(vocabulary, source)

    monkeypatch.setattr(matchers, "compile_grammar", compile_grammar)
    return seen


def test_a_slow_grammar_is_followed_where_it_was_read_beside_others_that_are_followed_here(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = compiled_here(monkeypatch)
    assert bench.vet("[ab]x*").source == SOURCE
    assert bench.prepare(SOURCE, {"far": (), "later": tuple(b"bx")}) is None
    assert bench.prepare(OTHER, {"near": ()}, is_slow=False) is None
    assert compiled == [OTHER]
    assert bench.allowed(far="", near="", later="") == {"far": "ab", "near": "cd", "later": "x"}
    assert bench.allowed(near="c", far="b") == {"near": "y", "far": "x"}


def test_an_output_that_a_slow_grammar_does_not_allow_is_told(bench: Bench) -> None:
    bench.vet("[ab]x*")
    assert str(bench.prepare(SOURCE, {"odd": tuple(b"bz")})).startswith(
        "the output so far does not follow it"
    )
    assert bench.prepare(SOURCE, {"even": tuple(b"bx")}) is None
    assert bench.allowed(even="x") == {"even": "x"}


def test_a_grammar_whose_process_ended_by_itself_is_not_let_in_here(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.vet("[ab]x*")
    bench.prepare(SOURCE, {"far": ()})
    bench.prepare(OTHER, {"near": ()}, is_slow=False)
    (pid,) = bench.pids
    os.kill(pid, signal.SIGKILL)
    until(lambda: not is_alive(pid))
    assert bench.allowed(far="", near="") == {"near": "cd"}
    compiled = compiled_here(monkeypatch)
    for _ in range(2):
        assert "took more memory" in str(bench.prepare(SOURCE, {"far": tuple(b"a")}))
    assert compiled == []
    assert bench.allowed(near="c") == {"near": "y"}


def test_a_process_follows_so_many_sequences_and_those_beyond_are_followed_here(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followers, "_MAX_SEQUENCES", 2)
    bench.vet("[ab]x*")
    compiled = compiled_here(monkeypatch)
    assert bench.prepare(SOURCE, {"a": (), "b": ()}) is None
    assert compiled == []
    assert bench.prepare(SOURCE, {"c": ()}) is None
    assert compiled == [SOURCE]
    assert bench.allowed(a="", b="", c="") == {"a": "ab", "b": "ab", "c": "ab"}
    bench.sequences.forget(("a",))
    assert bench.prepare(SOURCE, {"d": ()}) is None
    assert bench.sequences._theirs.keys() == {"b", "d"}


def test_a_process_that_took_much_memory_does_not_stay(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followers, "_MOST_KEPT_BYTES", -1)
    bench.vet("[ab]x*")
    assert bench.prepare(SOURCE, {"near": ()}) is None
    assert bench.sequences._theirs == {}
    assert bench.allowed(near="") == {"near": "ab"}


def test_a_process_that_does_not_answer_costs_its_own_sequences_alone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in "_PATIENCE_S", "_ANSWER_LIMIT_S":
        monkeypatch.setattr(followers, limit, 0.0)
    bench.vet("[ab]x*")
    bench.prepare(SOURCE, {"far": ()})
    bench.prepare(OTHER, {"near": ()}, is_slow=False)
    os.kill(bench.pids[0], signal.SIGSTOP)
    os.waitpid(bench.pids[0], os.WUNTRACED)  # it is
    try:
        assert bench.allowed(far="", near="") == {"near": "cd"}
    finally:
        os.kill(bench.pids[0], signal.SIGCONT)
    assert bench.allowed(far="", near="c") == {"near": "y"}
    compiled = compiled_here(monkeypatch)
    assert bench.prepare(SOURCE, {"far": tuple(b"a")}) is None
    assert compiled == [SOURCE]
    assert bench.allowed(far="", near="") == {"far": "x", "near": "y"}


def test_a_mask_that_is_late_keeps_nobody_waiting_and_is_there_when_it_is_asked_for_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.vet("[ab]x*")
    bench.prepare(SOURCE, {"far": (), "beside": ()})
    bench.prepare(OTHER, {"near": ()}, is_slow=False)
    (follower,) = bench.sequences._followers._kept.values()
    os.kill(bench.pids[0], signal.SIGSTOP)
    os.waitpid(bench.pids[0], os.WUNTRACED)  # it is
    try:
        with monkeypatch.context() as patch:
            patch.setattr(followers, "_PATIENCE_S", 0.0)
            assert bench.allowed(far="b", near="") == {"near": "cd"}
        # It was waited for once: a limit that would be noticed is none for who is late already.
        assert bench.allowed(far="", near="c") == {"near": "y"}
        assert follower.owes("far")
    finally:
        os.kill(bench.pids[0], signal.SIGCONT)
    assert bench.allowed(beside="", far="") == {"beside": "ab", "far": "x"}
    assert not follower.owes("far")


def test_who_forgets_waits_for_no_process_that_does_not_read(bench: Bench) -> None:
    pairs = [socket.socketpair() for _ in range(2)]
    theirs = wire.Channel(pairs[0][1], wire.Command)
    received = [*(ours.detach() for ours, _ in pairs), os.dup(bench.memory._file.fileno())]
    follower = followers.Follower(received, bench.local.row_bytes)
    for name in "a", "b":
        follower.forget(name)
    assert not theirs.has_news(0.0)
    wire.Channel(pairs[0][1].dup(), wire.Command).send(wire.Prepared(1))
    command = wire.Prepare(1, SOURCE, True, {"c": ()})
    assert follower.prepare(command)
    assert [theirs.receive() for _ in range(2)] == [wire.Forget(("a", "b")), command]
    follower.end()
    for _, end in pairs:
        end.close()


def test_a_forgotten_sequence_is_unknown_and_what_nobody_uses_makes_room(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followers, "_MAX_KEPT", 1)
    bench.vet("[ab]x*")
    bench.prepare(SOURCE, {"far": ()})
    bench.vet("[cd]y*")
    assert bench.prepare(OTHER, {"near": ()}) is None  # here: the other process is in use
    (used, dropped) = bench.pids
    until(lambda: not is_alive(dropped))
    assert bench.allowed(far="", near="") == {"far": "ab", "near": "cd"}
    bench.sequences.forget(("far",))
    assert bench.allowed(far="a", near="") == {"near": "cd"}
    bench.vet("[ef]z*")
    assert bench.prepare(source_of("regex", "[ef]z*"), {"new": ()}) is None
    until(lambda: not is_alive(used))
    assert is_alive(bench.pids[2])
    assert bench.allowed(new="") == {"new": "ef"}


def test_one_that_was_to_stand_still_just_when_it_had_told_goes_on(bench: Bench) -> None:
    bench.line.send(wire.Vet(1, "regex", "[ab]x*", None, "", ""))
    bench.vetting._step()
    (trial,) = bench.vetting._trials
    poll = select.poll()
    poll.register(trial.reads, 0)  # tells whether it has been closed at the other end
    assert poll.poll(60_000)
    os.kill(trial.pid, signal.SIGSTOP)
    os.waitpid(trial.pid, os.WUNTRACED)
    trial.is_stopped = True
    while not bench.line.has_news(0.0):
        bench.vetting._step()
    bench.pids.append(trial.pid)
    assert bench.prepare(SOURCE, {"far": ()}) is None
    assert bench.allowed(far="") == {"far": "ab"}
    assert "far" in bench.sequences._theirs


def test_what_was_read_quickly_stays_nowhere(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vetting, "_STAYS_S", 5.0)
    bench.vet("[ab]x*")
    (pid,) = bench.pids
    until(lambda: not is_alive(pid))
    assert bench.prepare(SOURCE, {"near": ()}) is None
    assert bench.sequences._theirs == {}


def test_a_grammar_at_fault_stays_nowhere(bench: Bench) -> None:
    assert "unclosed" in str(bench.vet("(a").error)
    (pid,) = bench.pids
    until(lambda: not is_alive(pid))


def test_a_trial_that_nobody_takes_in_does_not_stay() -> None:
    offers, taken = handover()
    taken.close()
    offering = Offering(LLTokenizer("byte"), offers)
    compiled = matchers.compile_grammar(LLTokenizer("byte"), SOURCE)
    assert offering.offer(SOURCE, compiled) is False
    offers.close()
