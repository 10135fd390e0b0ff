"""What has grammars read answers whatever happens to the process that reads them."""

from __future__ import annotations

import resource
import socket
import threading
from typing import Any

import pytest

from noria.config.errors import EngineError, RequestError
from noria.engine.messages import GenerateRequest
from noria.sampling.grammar import KINDS, Grammar
from noria.sampling.params import SamplingParams
from noria.structured import wire
from noria.structured.faults import GrammarFault
from noria.structured.grammars import GrammarConstraints
from noria.structured.matchers import Compiled
from noria.structured.preparing import Preparing
from noria.structured.reading import source_of
from support_grammar_processes import SETUP, Approving, Dying, Reading, sequence_of
from support_processes import LIMIT_S, until


def test_who_asks_hears_of_it_where_no_process_can_be_started() -> None:
    def setup() -> wire.Setup:
        raise OSError("no memory")

    preparing = Preparing(setup)
    for _ in range(2):  # the one who asks next is told as well
        asked = preparing.ask(Grammar("regex", "a"), {"a": ()})
        with pytest.raises(EngineError, match="cannot be started: no memory"):
            asked.result(timeout=10)
    preparing.close()
    with pytest.raises(EngineError, match="shut down"):
        preparing.ask(Grammar("regex", "a"), {"a": ()}).result(timeout=10)


@pytest.mark.parametrize("kinds", [(Dying, Reading), (Dying, Dying)])
def test_what_a_process_had_not_read_when_it_ended_is_read_by_the_next_one_and_by_no_third(
    monkeypatch: pytest.MonkeyPatch, kinds: tuple[type[Dying], ...]
) -> None:
    left = iter(kinds)
    monkeypatch.setattr(Dying, "made", [])
    monkeypatch.setattr("noria.structured.preparing.GrammarProcess", lambda: next(left)())
    preparing = Preparing(lambda: SETUP)
    asked = preparing.ask(Grammar("regex", "a", "response_format"), {"a": (5,)})
    if kinds[1] is Reading:
        assert asked.result(timeout=10) is None
    else:
        with pytest.raises(
            RequestError, match="response_format could not be read: what reads grammars ended"
        ):
            asked.result(timeout=10)
    assert len(Dying.made) == 2


class Hesitating(Approving):
    """Keeps what it is to try out, and finds out nothing until it may."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, str]] = []
        self.may = threading.Event()

    def send(self, vet: wire.Vet) -> None:
        self.seen.append((vet.text, vet.tenant))
        super().send(vet)

    def receive(self) -> wire.Vetted:
        self.may.wait()
        vetted = super().receive()
        return wire.Vetted(vetted.serial, error="it is bad") if vetted.source == "bad" else vetted


@pytest.fixture
def hesitating(monkeypatch: pytest.MonkeyPatch) -> Hesitating:
    made = Hesitating()

    def process() -> Reading:
        reading = Reading()
        reading.vetting = made
        return reading

    monkeypatch.setattr("noria.structured.preparing.GrammarProcess", process)
    return made


def test_a_grammar_that_a_tenant_asks_for_many_times_at_once_is_tried_out_once(
    hesitating: Hesitating,
) -> None:
    preparing = Preparing(lambda: SETUP)
    asked = [
        preparing.ask(Grammar("regex", text), {f"{number}": ()}, tenant)
        for number, (text, tenant) in enumerate([*[("a", "x"), ("bad", "x")] * 8, ("a", "y"), ("z", "x")])
    ]
    until(lambda: hesitating.seen[-1:] == [("z", "x")])
    assert hesitating.seen == [("a", "x"), ("bad", "x"), ("a", "y"), ("z", "x")]
    hesitating.may.set()
    for future, text in zip(asked, ["a", "bad"] * 8 + ["a", "z"], strict=True):
        if text == "bad":
            with pytest.raises(RequestError, match="it is bad"):
                future.result(timeout=10)
        else:
            assert future.result(timeout=10) is None


class Odd(Approving):
    def send(self, vet: wire.Vet) -> None:
        if vet.text == "odd":
            raise ValueError("what is this?")
        super().send(vet)


def test_what_cannot_be_asked_fails_and_others_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading()
    reading.vetting = Odd()
    preparing = sequence_of([lambda: reading], monkeypatch)
    for _ in range(2):
        odd = [preparing.ask(Grammar("regex", "odd", "text.format"), {name: ()}) for name in "ab"]
        for one in odd:
            with pytest.raises(EngineError, match=r"text\.format could not be asked about: ValueError"):
                one.result(LIMIT_S)
    assert preparing.ask(Grammar("regex", "a"), {"c": ()}).result(LIMIT_S) is None


class Garbled(Dying):
    def receive(self) -> wire.Prepared:
        while not isinstance(self.asked.get(), wire.Prepare):
            pass
        raise ValueError("what is this?")


def test_a_process_that_cannot_be_understood_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    preparing = sequence_of([Garbled, Reading], monkeypatch)
    assert preparing.ask(Grammar("regex", "a"), {"a": ()}).result(LIMIT_S) is None


@pytest.mark.parametrize("refused", [[True], [False, True]])
def test_a_process_that_there_is_no_thread_to_hear_is_replaced(
    monkeypatch: pytest.MonkeyPatch, refused: list[bool]
) -> None:
    left = iter(refused)

    class Refusing(threading.Thread):
        def start(self) -> None:
            if self.name == "noria-grammars-in" and next(left, False):
                raise RuntimeError("no more threads")
            super().start()

    monkeypatch.setattr("noria.structured.preparing.threading.Thread", Refusing)
    _fails_once("no more threads", sequence_of([Reading, Reading], monkeypatch))


class Stuffed(Reading):
    """Takes in no more than a part of the first message."""

    def send(self, message: Any) -> None:
        raise BlockingIOError("it reads nothing")


def test_a_process_that_does_not_take_all_that_it_has_to_know_first_is_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _fails_once("it reads nothing", sequence_of([Stuffed, Reading], monkeypatch))


def _fails_once(reason: str, preparing: Preparing) -> None:
    with pytest.raises(EngineError, match=f"cannot be started: {reason}"):
        preparing.ask(Grammar("regex", "a"), {"a": ()}).result(LIMIT_S)
    assert preparing.process is None
    assert preparing.ask(Grammar("regex", "a"), {"b": ()}).result(LIMIT_S) is None
    assert preparing.process is Dying.made[1]


def test_what_a_process_says_as_it_is_replaced_settles_nothing_that_the_next_one_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    has_been_heard = threading.Event()

    class Replaced(Reading):
        has_ended = False

        def end(self) -> None:
            self.has_ended = True

        def receive(self) -> wire.Prepared:
            if self.has_ended:
                has_been_heard.set()
            prepared = super().receive()
            process: Any = self
            preparing.end(process)
            return wire.Prepared(prepared.serial, "it is bad")

    class Next(Reading):
        def receive(self) -> wire.Prepared:
            prepared = super().receive()
            assert has_been_heard.wait(LIMIT_S)
            return prepared

    preparing = sequence_of([Replaced, Next], monkeypatch)
    assert preparing.ask(Grammar("regex", "a"), {"a": ()}).result(LIMIT_S) is None


class Deaf(Dying):
    """Takes in nothing but the first message."""

    def __init__(self) -> None:
        super().__init__()
        self.is_told = threading.Event()
        self.has_ended = threading.Event()

    def send(self, message: Any) -> None:
        if isinstance(message, wire.Prepare):
            self.is_told.set()
            assert self.has_ended.wait(LIMIT_S)
            raise BrokenPipeError

    def receive(self) -> wire.Prepared:
        self.has_ended.wait()
        raise EOFError

    def end(self) -> None:
        self.has_ended.set()


def test_the_end_waits_for_no_process_that_takes_in_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    preparing = sequence_of([Deaf], monkeypatch)
    asked = [preparing.ask(Grammar("regex", text), {text: ()}) for text in "ab"]
    until(lambda: Dying.made)
    process: Any = Dying.made[0]
    assert process.is_told.wait(LIMIT_S)
    preparing.close()
    for one in asked:
        with pytest.raises(EngineError, match="shut down"):
            one.result(LIMIT_S)


class Noting(Dying):
    def receive(self) -> wire.Prepared:
        self._has_ended = threading.Event()
        self._has_ended.wait()
        raise EOFError


def test_a_request_id_that_is_used_again_is_another_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Dying, "made", [])
    monkeypatch.setattr("noria.structured.preparing.GrammarProcess", Noting)
    constraints = GrammarConstraints(lambda: SETUP, 8, [0])
    seen = []
    for text in "ab":
        params = SamplingParams(grammar=Grammar("regex", text))
        constraints.prepare([GenerateRequest("same", (1,), params, 7)])
        until(lambda: Dying.made)
        while not isinstance(message := Dying.made[0].asked.get(timeout=LIMIT_S), wire.Prepare):
            pass
        seen.append((message.source, *message.outputs))
        constraints.forget(["same"])
    (first, one), (second, other) = seen
    assert (first, second) == ("a", "b")
    assert one != other
    left = [Dying.made[0].asked.get(timeout=LIMIT_S)]
    assert left == [wire.Forget((other,))]
    constraints.shutdown()


def test_a_channel_of_any_descriptor_tells_whether_there_is_news() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 2048), hard))
    try:
        pairs = [socket.socketpair() for _ in range(520)]  # more than `select` can count
        ours, theirs = pairs[-1]
        assert ours.fileno() > 1024
        channel = wire.Channel(ours, wire.Filled)
        assert not channel.has_news(0.0)
        wire.Channel(theirs, wire.Fill).send(wire.Filled({}, ()))
        assert channel.has_news(10.0)
        assert channel.receive() == wire.Filled({}, ())
        channel.close()
        assert channel.has_news(0.0)  # `receive` tells that there will be none
    finally:
        for pair in pairs:
            for end in pair:
                end.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "null", "1", '{"structures": 1}', '{"structures": [{}]}', "\ud83d"]
)
def test_any_text_of_any_kind_is_a_grammar_or_at_fault(kind: str, text: str) -> None:
    compiled = Compiled(_letters())
    for _ in range(2):  # the second time what was found out is told again
        try:
            assert compiled.find(source_of(kind, text)) is not None
        except GrammarFault as fault:
            assert str(fault)


def _letters() -> object:
    import llguidance

    class Letters(llguidance.TokenizerWrapper):
        def __init__(self) -> None:
            self.is_tokenizer_wrapper = True
            self.eos_token_id, self.bos_token_id = 256, None
            self.tokens = [*(bytes([i]) for i in range(256)), b"<end>"]
            self.special_token_ids = [256]

        def __call__(self, text: str | bytes) -> list[int]:
            return list(text.encode() if isinstance(text, str) else text)

    return llguidance.LLTokenizer(Letters(), n_vocab=257, eos_token=[256])
