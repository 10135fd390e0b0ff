"""The process that reads grammars may end, hang or come late: its own requests bear it, and no others."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import pytest

from noria import LLM, RequestError, SamplingParams
from noria.engine.messages import GenerateRequest
from noria.sampling.grammar import Grammar
from support_processes import is_alive, until

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


class News:
    """A sink that gathers what one request is told."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.finish: Any = None
        self.error: str | None = None
        self.ended = threading.Event()

    def __call__(self, deltas: Any) -> None:
        for delta in deltas:
            self.tokens += delta.token_ids
            if delta.finish is not None:
                self.finish = delta.finish
                self.error = delta.error
                self.ended.set()


def submit(llm: LLM, name: str, asked: SamplingParams) -> tuple[Any, News]:
    news = News()
    prompt = tuple(llm.tokenizer.encode("hello"))
    return llm.client.submit([GenerateRequest(name, prompt, asked, 7)], news), news


@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGSTOP])
def test_outputs_go_on_as_if_nothing_had_been_when_the_process_is_lost(
    llm: LLM, monkeypatch: pytest.MonkeyPatch, blow: signal.Signals
) -> None:
    monkeypatch.setattr("noria.structured.asking._FILL_LIMIT_S", 0.5)
    expected = texts(llm, [params(DIGITS)])
    before = pid_of(llm)
    verdict, news = submit(llm, "lost", params(DIGITS))
    verdict.result(20)
    until(lambda: len(news.tokens) > 20)
    os.kill(before, blow)
    assert news.ended.wait(30)
    assert news.error is None
    assert [llm.tokenizer.decode(news.tokens, True)] == expected
    assert pid_of(llm) != before
    until(lambda: not is_alive(before))


def test_others_go_on_while_a_grammar_is_read(llm: LLM) -> None:
    os.kill(pid_of(llm), signal.SIGSTOP)  # as if it took for ever
    try:
        verdict, _ = submit(llm, "reading", params(Grammar("regex", "[a-c]{3}")))
        assert len(texts(llm, [params(None, ignore_eos=True)])[0]) > 0
        assert not verdict.done()
        same, _ = submit(llm, "reading", params(None))
        with pytest.raises(RequestError, match="in use"):
            same.result(5)
    finally:
        os.kill(pid_of(llm), signal.SIGCONT)
    verdict.result(20)


def test_who_waits_for_a_grammar_does_not_notice_that_another_one_ended_the_process(llm: LLM) -> None:
    texts(llm, [params(Grammar("regex", "[0-9]{4}"))])  # there is a process
    pid = pid_of(llm)
    os.kill(pid, signal.SIGSTOP)
    verdict, news = submit(llm, "innocent", params(Grammar("regex", "[d-f]{4}")))
    os.kill(pid, signal.SIGKILL)
    verdict.result(20)
    assert news.ended.wait(20)
    assert news.error is None
    assert len(news.tokens) == 5


def test_a_request_cancelled_while_its_grammar_is_read_ends_at_once_and_leaves_nothing(llm: LLM) -> None:
    os.kill(pid_of(llm), signal.SIGSTOP)
    try:
        verdict, news = submit(llm, "unwanted", params(Grammar("regex", "[x-z]{190}")))
        llm.client.cancel(["unwanted"])
    finally:
        os.kill(pid_of(llm), signal.SIGCONT)
    verdict.result(20)
    assert news.ended.wait(20)
    assert news.finish.value == "abort"
    until(lambda: grammars(llm)._sequences == {})


def test_a_refused_grammar_leaves_nothing(llm: LLM) -> None:
    verdict, _ = submit(llm, "refused", params(Grammar("regex", "(a")))
    with pytest.raises(RequestError, match="unclosed"):
        verdict.result(20)
    assert grammars(llm)._sequences == {}
    assert "refused" not in llm.client._preparations


def test_the_process_ends_with_its_engine(letters_model: Any) -> None:
    with LLM(letters_model, show_progress=False, max_model_len=256, num_gpu_blocks_override=64) as own:
        assert preparing(own).process is None  # nobody has asked for a grammar
        texts(own, [params(Grammar("regex", "[0-9]{4}"))])
        pid = pid_of(own)
        assert is_alive(pid)
    until(lambda: not is_alive(pid))
