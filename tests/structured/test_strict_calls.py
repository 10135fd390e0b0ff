"""What grammars have models write in each format: calls that its reader reads, whose arguments follow their schema."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

import llguidance
import numpy as np
import pytest

from noria.parsers.formats import TOOL_FORMATS
from noria.parsers.written import StrictTools, calls_tree, free_tree
from noria.sampling.grammar import Marker, Prologue
from noria.structured.reading import compile_grammar, source_of
from support_tool_texts import BARE, CALLS, TOOLS, WRITERS, calls_of, read

EOS = 256
STRICT = {name: form for name, form in TOOL_FORMATS.items() if form.strict is not None}
FOLLOWED = ("one", "two", "the same twice", "nested braces", "escaped quotes")
BY_FORMAT = pytest.mark.parametrize("name", STRICT)
BY_TOKENS = pytest.mark.parametrize("are_special", [False, True], ids=["text", "special tokens"])


class Letters(llguidance.TokenizerWrapper):
    """A token a byte, and one for each marker."""

    def __init__(self, markers: tuple[str, ...]) -> None:
        self.is_tokenizer_wrapper = True
        self.eos_token_id, self.bos_token_id = EOS, None
        self.tokens = [*(bytes([i]) for i in range(256)), b"<end>", *(one.encode() for one in markers)]
        self.special_token_ids = list(range(EOS, len(self.tokens)))

    def __call__(self, text: str | bytes) -> list[int]:
        return list(text.encode() if isinstance(text, str) else text)


@lru_cache(maxsize=64)
def vocabulary(markers: tuple[str, ...]) -> llguidance.LLTokenizer:
    return llguidance.LLTokenizer(Letters(markers), n_vocab=EOS + 1 + len(markers), eos_token=[EOS])


class Follower:
    """Takes texts as a model would write them, token by token."""

    def __init__(
        self,
        tree: dict[str, Any],
        markers: tuple[str, ...] = (),
        prologue: Prologue | None = None,
        begins_not: str = "",
    ) -> None:
        self._markers = {marker: EOS + 1 + place for place, marker in enumerate(markers)}
        text = json.dumps({"format": tree})
        source = source_of("structural_tag", text, prologue, begins_not, self._markers)
        self._matcher = compile_grammar(vocabulary(markers), source)

    def num_taken(self, text: str) -> int:
        """Characters, up to the first that may not come."""
        place = 0
        while place < len(text):
            marker = next((one for one in self._markers if text.startswith(one, place)), None)
            ids = [self._markers[marker]] if marker else list(text[place].encode())
            for token_id in ids:
                if token_id not in self.allowed():
                    return place
                assert self._matcher.consume_token(token_id)
            place += len(marker or text[place])
        return place

    def takes(self, text: str) -> bool:
        """Whether it may come, and end there."""
        return self.num_taken(text) == len(text) and EOS in self.allowed()

    def allowed(self) -> set[int]:
        bits = np.unpackbits(np.frombuffer(self._matcher.compute_bitmask(), np.uint8), bitorder="little")
        return set(np.flatnonzero(bits).tolist())


def markers_of(name: str, are_special: bool) -> tuple[str, ...]:
    """As a vocabulary has them: a marker that is made of two is two."""
    if not are_special:
        return ()
    if name == "internlm":
        return ("<|action_start|>", "<|plugin|>", "<|action_end|>")
    # "```" before an end marker is text.
    return tuple(one for one in dict.fromkeys(TOOL_FORMATS[name].markers) if not one.startswith("```"))


def follower(
    name: str, are_special: bool = False, tools: StrictTools = TOOLS, is_parallel: bool = True
) -> Follower:
    form = TOOL_FORMATS[name]
    assert form.strict is not None
    tree = free_tree(form.strict, form.begins, form.silent, tools, is_parallel)
    return Follower(tree, markers_of(name, are_special), begins_not=form.strict.bare_head)


def test_the_formats_that_a_grammar_can_write_are_those_with_json_in_them() -> None:
    assert set(TOOL_FORMATS) - STRICT.keys() == {
        "qwen3_coder", "glm45", "minimax_m2", "seed_oss", "lfm2", "olmo3", "llama4_pythonic",
    }  # fmt: skip


@BY_FORMAT
@BY_TOKENS
@pytest.mark.parametrize("case", FOLLOWED)
def test_calls_that_follow_their_schemas_may_come_among_words_and_are_read(
    name: str, are_special: bool, case: str
) -> None:
    words = "" if name in BARE else "I look: \n"
    text = words + WRITERS[name](CALLS[case])
    assert follower(name, are_special).takes(text)
    assert calls_of(read(name, text)) == CALLS[case]


@BY_FORMAT
@BY_TOKENS
def test_words_alone_may_come(name: str, are_special: bool) -> None:
    for text in ("", "Hm. 2 < 3 {and} [so] on\n", '{"born": 1815}', " [1, 2]"):
        assert follower(name, are_special).takes(text)


WRONG = {
    "a value of another type": ("get_weather", {"city": "Paris", "days": "3"}, '"days": '),
    "an argument that the schema has not": ("get_weather", {"town": "Paris"}, '"'),
    "a tool that there is not": ("get_whether", {}, "get_w"),
}


@BY_FORMAT
@BY_TOKENS
@pytest.mark.parametrize("fault", WRONG)
def test_calls_that_do_not_follow_stop_where_they_leave_the_schema(
    name: str, are_special: bool, fault: str
) -> None:
    called, arguments, before = WRONG[fault]
    text = WRITERS[name]([(called, arguments)])
    taken = text[: follower(name, are_special).num_taken(text)]
    assert taken != text
    assert taken.endswith(before)


@BY_FORMAT
def test_a_tool_that_is_not_strict_takes_any_object(name: str) -> None:
    calls = [("now", {"zone": {"of": [1, "x"]}}), ("get_weather", {"city": "Rome"})]
    text = WRITERS[name](calls)
    assert follower(name, tools={**TOOLS, "now": None}).takes(text)
    assert not follower(name).takes(text)


@BY_FORMAT
def test_names_that_begin_alike_are_told_apart(name: str) -> None:
    tools: dict[str, Any] = {one: {"type": "object", "properties": {}} for one in ("get", "get_all", "get-2")}
    for one in tools:
        assert follower(name, tools=tools).takes(WRITERS[name]([(one, {})]))


@BY_FORMAT
@BY_TOKENS
def test_behind_the_begin_marker_nothing_but_a_call_may_come(name: str, are_special: bool) -> None:
    for begin in TOOL_FORMATS[name].begins:
        made = follower(name, are_special)
        assert made.num_taken(f"So {begin}") == len(f"So {begin}")
        assert EOS not in made.allowed()
        assert ord("!") not in made.allowed()


@BY_TOKENS
def test_reasoning_comes_before_it_and_may_hold_what_looks_like_a_call(are_special: bool) -> None:
    form = TOOL_FORMATS["hermes"]
    assert form.strict is not None
    tree = free_tree(form.strict, form.begins, form.silent, TOOLS, True)
    markers = ("<think>", "</think>") if are_special else ()
    ids = (EOS + 1, EOS + 2) if are_special else (None, None)
    think, end = Marker("<think>", ids[0]), Marker("</think>", ids[1])
    call = WRITERS["hermes"](CALLS["one"])
    text = f"<tool_call> or not</think>\n\n{call}"
    assert Follower(tree, markers, Prologue(None, end)).takes(text)
    for whole in (f"<think>{text}", f"\n<think>{text}", f"No. {call}", call, f"\n{call}", "<thin ice>"):
        assert Follower(tree, markers, Prologue(think, end)).takes(whole)
    wrong = WRITERS["hermes"]([("now", {"x": 1})])
    for whole in (f"<think>hm</think>{wrong}", f"\n<think>hm</think>{wrong}", f"No. {wrong}", wrong):
        assert not Follower(tree, markers, Prologue(think, end)).takes(whole)


BESIDE = [name for name in STRICT if name not in BARE]
FORM = {"type": "json_schema", "json_schema": {"type": "object", "required": ["a"]}}


@pytest.mark.parametrize("name", BESIDE)
@BY_TOKENS
def test_beside_a_form_an_answer_is_calls_or_the_form(name: str, are_special: bool) -> None:
    form = TOOL_FORMATS[name]
    assert form.strict is not None

    def taking(is_parallel: bool = True) -> Follower:
        assert form.strict is not None
        tree = calls_tree(form.strict, form.begins, form.silent, TOOLS, is_parallel)
        return Follower({"type": "or", "elements": [tree, FORM]}, markers_of(name, are_special))

    calls = WRITERS[name](CALLS["two"])
    for text in (calls, calls + "\n", '{"a": 1}'):
        assert taking().takes(text)
    assert not taking(is_parallel=False).takes(calls)
    assert taking(is_parallel=False).takes(WRITERS[name](CALLS["one"]))
    for text in ("", "Hm.", "{}", "I look: " + calls):
        assert not taking().takes(text)


@pytest.mark.parametrize("name", BARE)
def test_a_format_without_markers_tells_no_calls_from_a_form(name: str) -> None:
    form = TOOL_FORMATS[name]
    if form.strict is not None:
        assert calls_tree(form.strict, form.begins, form.silent, TOOLS, True) is None
