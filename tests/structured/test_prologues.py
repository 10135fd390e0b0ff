"""Where a model reasons first, a form holds from where its reasoning ends, and nothing else ends the output."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import llguidance
import numpy as np
import pytest

from noria import LLM, SamplingParams
from noria.sampling.grammar import Grammar, Marker, Prologue
from noria.structured.reading import compile_grammar, source_of

BEGIN, END = Marker("<think>"), Marker("</think>")
EOS, END_ID, BEGIN_ID = 256, 257, 258
SPECIAL_BEGIN, SPECIAL_END = Marker("<think>", BEGIN_ID), Marker("</think>", END_ID)
SHAPES = {
    "json_schema": ('{"type": "object", "required": ["a"]}', "{"),
    "json_object": ("", "{"),
    "regex": ("[0-9]{3}", "0123456789"),
    "choice": ('["yes", "no"]', "yn"),
    "lark": ('start: "x" y\ny: "z"+', "x"),
}


class Letters(llguidance.TokenizerWrapper):
    def __init__(self) -> None:
        self.is_tokenizer_wrapper = True
        self.eos_token_id, self.bos_token_id = EOS, None
        self.tokens = [*(bytes([i]) for i in range(256)), b"<end>", b"</think>", b"<think>"]
        self.special_token_ids = [EOS, END_ID, BEGIN_ID]

    def __call__(self, text: str | bytes) -> list[int]:
        return list(text.encode() if isinstance(text, str) else text)


VOCABULARY = llguidance.LLTokenizer(Letters(), n_vocab=259, eos_token=[EOS])


def allowed(matcher: Any) -> set[int]:
    bits = np.unpackbits(np.frombuffer(matcher.compute_bitmask(), np.uint8), bitorder="little")
    return set(np.flatnonzero(bits).tolist())


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("thought", ["", "hm", "a < b </thin {}\n\n"])
def test_every_kind_of_form_holds_behind_the_end_marker(kind: str, thought: str) -> None:
    text, first = SHAPES[kind]
    for end, written in (END, list(b"</think>")), (SPECIAL_END, [END_ID]):
        matcher = compile_grammar(VOCABULARY, source_of(kind, text, Prologue(None, end)))
        for token_id in thought.encode():
            assert set(range(128)) <= allowed(matcher)
            assert EOS not in allowed(matcher)
            assert matcher.consume_token(token_id)
        assert matcher.consume_tokens(written)
        assert allowed(matcher) == set(first.encode())


@pytest.mark.parametrize("kind", SHAPES)
def test_reasoning_that_the_prompt_did_not_begin_may_be_left_out(kind: str) -> None:
    text, first = SHAPES[kind]
    for begin, end, written in (BEGIN, END, b"<think>hm</think>"), (SPECIAL_BEGIN, SPECIAL_END, None):
        matcher = compile_grammar(VOCABULARY, source_of(kind, text, Prologue(begin, end)))
        opening = {ord("<")} if written else {BEGIN_ID}
        assert allowed(matcher) >= opening | set(first.encode())
        assert EOS not in allowed(matcher)
        other = matcher.deep_copy()
        assert other.consume_tokens(list(first.encode()[:1]))
        assert BEGIN_ID not in allowed(other)
        assert matcher.consume_tokens(list(written) if written else [BEGIN_ID, ord("h"), END_ID])
        assert allowed(matcher) == set(first.encode())


def test_what_follows_the_first_end_marker_is_the_answer() -> None:
    matcher = compile_grammar(VOCABULARY, source_of("regex", "[a-z/<>]+", Prologue(None, END)))
    assert matcher.consume_tokens(list(b"hm</think>"))
    assert ord("H") not in allowed(matcher)
    assert matcher.consume_tokens(list(b"</think>"))
    assert EOS in allowed(matcher)


def thinking(llm: LLM, budget: int, seed: int = 1) -> SamplingParams:
    end = tuple(llm.tokenizer.encode("</think>", add_special_tokens=False))
    grammar = Grammar("regex", "[0-9]{4}", prologue=Prologue(None, END))
    return SamplingParams(
        temperature=1.0,
        seed=seed,
        max_tokens=200,
        grammar=grammar,
        thinking_token_budget=budget,
        reasoning_end_ids=end,
    )


@pytest.mark.parametrize("budget", [0, 1, 20])
@pytest.mark.parametrize("seed", range(6))
def test_a_budget_ends_the_reasoning_and_the_form_begins(llm: LLM, budget: int, seed: int) -> None:
    (result,) = llm.generate("hello", thinking(llm, budget, seed), show_progress=False)
    output = result.outputs[0]
    assert output.finish_reason == "stop"
    _, marker, answer = output.text.partition("</think>")
    assert (marker, bool(re.fullmatch("[0-9]{4}", answer))) == ("</think>", True)
    num_thought = len(output.token_ids) - len("</think>") - len("0000") - 1
    assert budget <= num_thought <= budget + 3  # more only to complete a character


def test_without_reasoning_the_form_holds_from_the_start(llm: LLM) -> None:
    grammar = Grammar("regex", "[0-9]{4}", prologue=Prologue(BEGIN, END))
    banned = {llm.tokenizer.encode(text, add_special_tokens=False)[0]: -100.0 for text in "< \n\t\r"}
    params = SamplingParams(temperature=1.0, seed=3, max_tokens=50, grammar=grammar, logit_bias=banned)
    (result,) = llm.generate("hello", params, show_progress=False)
    assert re.fullmatch("[0-9]{4}", result.outputs[0].text)


def test_preempted_or_not_outputs_are_the_same(llm: LLM, letters_model: Path) -> None:
    asked = [thinking(llm, 90, seed) for seed in range(8)]
    alone = [llm.generate("hello", one, show_progress=False)[0].outputs[0].token_ids for one in asked]
    with LLM(letters_model, show_progress=False, max_model_len=256, num_gpu_blocks_override=24) as small:
        results = small.generate(["hello"] * 8, asked, show_progress=False)
        assert sum(record.num_preemptions for record in small.client.recorder.requests()) > 0
    assert [result.outputs[0].token_ids for result in results] == alone


def test_a_form_is_another_one_with_another_prologue() -> None:
    plain = Grammar("regex", "a")
    assert plain != dataclasses.replace(plain, prologue=Prologue(None, END))
