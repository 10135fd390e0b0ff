"""The process that reads grammars may end, hang or come late: its own requests bear it, and no others."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

from noria import LLM, RequestError, SamplingParams
from noria.engine.messages import GenerateRequest
from noria.sampling.grammar import Grammar
from noria.structured.helper import GrammarProcess
from support_processes import LIMIT_S, is_alive, until

DIGITS = Grammar("regex", "[0-9]{150}")


def params(grammar: Grammar | None, **changes: Any) -> SamplingParams:
    return SamplingParams(**{"temperature": 1.0, "max_tokens": 200, "seed": 7, **changes}, grammar=grammar)


def texts(llm: LLM, asked: list[SamplingParams]) -> list[str]:
    results = llm.generate(["hello"] * len(asked), asked, show_progress=False)
    return [result.outputs[0].text for result in results]


def grammars(llm: LLM) -> Any:
    return llm.client._loop.constraints._grammars


def preparing(llm: LLM) -> Any:
    return grammars(llm)._preparing


def pid_of(llm: LLM) -> int:
    return preparing(llm).process._process.pid


def started(llm: LLM) -> int:
    """The id of the process, which there is once a grammar was asked for."""
    texts(llm, [params(Grammar("regex", "[0-9]{4}"))])
    return pid_of(llm)


class News:
    """A sink that gathers what one request is told. then: done on the engine's thread once there are `after` tokens."""

    def __init__(self, after: int = 0, then: Callable[[], None] = lambda: None) -> None:
        self._after = after
        self._then = then
        self.tokens: list[int] = []
        self.finish: Any = None
        self.error: str | None = None
        self.ended = threading.Event()

    def __call__(self, deltas: Any) -> None:
        for delta in deltas:
            had = len(self.tokens)
            self.tokens += delta.token_ids
            if had < self._after <= len(self.tokens):
                self._then()
            if delta.finish is not None:
                self.finish = delta.finish
                self.error = delta.error
                self.ended.set()


def submit(llm: LLM, name: str, asked: SamplingParams, news: News | None = None) -> tuple[Any, News]:
    news = news or News()
    prompt = tuple(llm.tokenizer.encode("hello"))
    return llm.client.submit([GenerateRequest(name, prompt, asked, 7)], news), news


@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGSTOP])
def test_outputs_go_on_as_if_nothing_had_been_when_the_process_is_lost(
    llm: LLM, monkeypatch: pytest.MonkeyPatch, blow: signal.Signals
) -> None:
    # However slowly the next one starts here.
    monkeypatch.setattr("noria.structured.awaited.QUICK_LIMIT_S", LIMIT_S)
    expected = texts(llm, [params(DIGITS)])
    process = preparing(llm).process
    strike = News(20, lambda: os.kill(process._process.pid, blow))
    verdict, news = submit(llm, "lost", params(DIGITS), strike)
    verdict.result(LIMIT_S)
    assert news.ended.wait(LIMIT_S)
    assert news.error is None
    assert [llm.tokenizer.decode(news.tokens, True)] == expected
    assert preparing(llm).process is not process
    until(lambda: not is_alive(process._process.pid))


def test_others_go_on_while_the_process_does_not_answer(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noria.structured.asking._FILL_LIMIT_S", LIMIT_S)  # it is not given up
    long = params(Grammar("regex", "[0-9]{1200}"), max_tokens=1300)
    expected = texts(llm, [long])
    process = preparing(llm).process
    pid = pid_of(llm)
    verdict, news = submit(llm, "late", long, News(20, lambda: os.kill(pid, signal.SIGSTOP)))
    verdict.result(LIMIT_S)
    try:
        until(lambda: len(news.tokens) >= 20)
        results = llm.generate(["hello"], [params(None, ignore_eos=True)], show_progress=False)
        assert len(results[0].outputs[0].token_ids) == 200
        assert not news.ended.is_set()
    finally:
        os.kill(pid, signal.SIGCONT)
    assert news.ended.wait(LIMIT_S)
    assert news.error is None
    assert [llm.tokenizer.decode(news.tokens, True)] == expected
    assert preparing(llm).process is process


def test_others_go_on_while_a_process_that_was_lost_is_replaced(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = params(Grammar("regex", "[0-9]{1200}"), max_tokens=1300)
    expected = texts(llm, [long])
    may_start = threading.Event()

    def replacement() -> GrammarProcess:
        may_start.wait()
        return GrammarProcess()

    monkeypatch.setattr("noria.structured.preparing.GrammarProcess", replacement)
    pid = pid_of(llm)
    verdict, news = submit(llm, "lost", long, News(20, lambda: os.kill(pid, signal.SIGKILL)))
    verdict.result(LIMIT_S)
    try:
        until(lambda: preparing(llm).process is None)
        results = llm.generate(["hello"], [params(None, ignore_eos=True)], show_progress=False)
        assert len(results[0].outputs[0].token_ids) == 200
        assert not news.ended.is_set()
    finally:
        may_start.set()
    assert news.ended.wait(LIMIT_S)
    assert news.error is None
    assert [llm.tokenizer.decode(news.tokens, True)] == expected


def test_others_go_on_while_a_grammar_is_read(llm: LLM) -> None:
    pid = started(llm)
    os.kill(pid, signal.SIGSTOP)  # as if it took for ever
    try:
        verdict, _ = submit(llm, "reading", params(Grammar("regex", "[a-c]{3}")))
        assert len(texts(llm, [params(None, ignore_eos=True)])[0]) > 0
        assert not verdict.done()
        same, _ = submit(llm, "reading", params(None))
        with pytest.raises(RequestError, match="in use"):
            same.result(LIMIT_S)
    finally:
        os.kill(pid, signal.SIGCONT)
    verdict.result(LIMIT_S)


def test_who_waits_for_a_grammar_does_not_notice_that_another_one_ended_the_process(llm: LLM) -> None:
    pid = started(llm)
    os.kill(pid, signal.SIGSTOP)
    verdict, news = submit(llm, "innocent", params(Grammar("regex", "[d-f]{4}")))
    os.kill(pid, signal.SIGKILL)
    verdict.result(LIMIT_S)
    assert news.ended.wait(LIMIT_S)
    assert news.error is None
    assert len(news.tokens) == 5


def test_a_request_cancelled_while_its_grammar_is_read_ends_at_once_and_leaves_nothing(llm: LLM) -> None:
    pid = started(llm)
    os.kill(pid, signal.SIGSTOP)
    try:
        verdict, news = submit(llm, "unwanted", params(Grammar("regex", "[x-z]{190}")))
        llm.client.cancel(["unwanted"])
    finally:
        os.kill(pid, signal.SIGCONT)
    verdict.result(LIMIT_S)
    assert news.ended.wait(LIMIT_S)
    assert news.finish.value == "abort"
    until(lambda: grammars(llm)._sequences == {})


def test_a_refused_grammar_leaves_nothing(llm: LLM) -> None:
    verdict, _ = submit(llm, "refused", params(Grammar("regex", "(a")))
    with pytest.raises(RequestError, match="unclosed"):
        verdict.result(LIMIT_S)
    assert grammars(llm)._sequences == {}
    assert "refused" not in llm.client._preparations


def test_the_process_ends_with_its_engine(letters_model: Any) -> None:
    with LLM(letters_model, show_progress=False, max_model_len=256, num_gpu_blocks_override=64) as own:
        assert preparing(own).process is None  # nobody has asked for a grammar
        pid = started(own)
        assert is_alive(pid)
    until(lambda: not is_alive(pid))
