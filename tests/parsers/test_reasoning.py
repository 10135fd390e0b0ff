from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noria.parsers.formats import REASONING_FORMATS, TOOL_FORMATS
from noria.parsers.parts import CallArguments, CallBegin, Content, Part, Reasoning, joined
from noria.parsers.reasoning import Place, ReasoningReader
from noria.parsers.reply import PlainReader, ReplyReader
from noria.parsers.sink import CallSink
from noria.parsers.tool_calls import ToolCallReader
from support_tool_texts import TOOLS

# (where the answer begins, the answer with {b} and {e} for the markers, reasoning, content)
ANSWERS = {
    "both": (Place.START, "{b}\nHm, 2 < 3.\n{e}\n\nYes.\n", "Hm, 2 < 3.", "Yes.\n"),
    "space before": (Place.START, "\n {b}Hm{e}Yes", "Hm", "Yes"),
    "the prompt has begun it": (Place.REASONING, "Hm\nhm\n{e}\nYes", "Hm\nhm", "Yes"),
    "begun twice": (Place.REASONING, "{b}Hm{e}Yes", "{b}Hm", "Yes"),
    "nothing thought": (Place.START, "{b}\n\n{e}\n\nYes", "", "Yes"),
    "no end": (Place.START, "{b}Hm, but then", "Hm, but then", ""),
    "an end that is not whole": (Place.REASONING, "Hm <", "Hm <", ""),
    "no reasoning": (Place.START, " Yes, {e} or {b}no{e}", "", " Yes, {e} or {b}no{e}"),
    "nothing but space": (Place.START, " \n", "", " \n"),
    "over before it began": (Place.ANSWER, "{b}Hm{e}", "", "{b}Hm{e}"),
    "not ASCII": (Place.START, "{b}Zürich 東京{e} 🌧", "Zürich 東京", "🌧"),
}


def read(reader: ReasoningReader, pieces: list[str]) -> tuple[Part, ...]:
    parts: list[Part] = []
    for piece in pieces:
        parts += reader.feed(piece)
    return joined(parts + reader.finish())


@pytest.mark.parametrize("name", REASONING_FORMATS)
@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_reasoning_and_answer_are_told_apart_however_they_are_cut(
    name: str, answer: tuple[Place, str, str, str]
) -> None:
    form = REASONING_FORMATS[name]
    place, *texts = answer
    text, reasoning, content = (text.format(b=form.begin, e=form.end) for text in texts)
    expected = joined([Reasoning(reasoning), Content(content)])
    cuts = [[text], list(text), *([text[:i], text[i:]] for i in range(1, len(text)))]
    for pieces in cuts:
        assert read(ReasoningReader(form, place), pieces) == expected


def reply(form: str = "hermes") -> ReplyReader:
    sink = CallSink(TOOLS, lambda index, name: f"call-{index}")
    return ReplyReader(
        ReasoningReader(REASONING_FORMATS["deepseek_r1"]), ToolCallReader(TOOL_FORMATS[form], sink)
    )


TEXT = '<think>\nTime?\n</think>\n\nLet me see.\n<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
PARTS = (
    Reasoning("Time?"),
    Content("Let me see."),
    CallBegin(0, "call-0", "now"),
    CallArguments(0, "{}"),
)


def said(reader: ReplyReader, pieces: list[str], offsets: list[tuple[int, ...]]) -> tuple[Part, ...]:
    parts: list[Part] = []
    for place, (piece, starts) in enumerate(zip(pieces, offsets, strict=True)):
        parts += reader.feed(piece, starts, place == len(pieces) - 1)
    return joined(parts)


@given(st.sets(st.integers(1, len(TEXT) - 1), max_size=20), st.sets(st.integers(0, 20), max_size=8))
def test_an_answer_with_everything_is_read_and_counted_alike_however_tokens_come(
    places: set[int], joints: set[int]
) -> None:
    """Tokens begin at `places`; those at `joints` come together with the one before."""
    starts = [0, *sorted(places)]
    tokens = [(TEXT[start:end], start) for start, end in pairwise([*starts, len(TEXT)])]
    pieces, offsets = [], []
    for place, (text, start) in enumerate(tokens):
        if pieces and place in joints:
            pieces[-1] += text
            offsets[-1] = (*offsets[-1], start)
        else:
            pieces.append(text)
            offsets.append((start,))
    reader = reply()
    assert said(reader, pieces, offsets) == PARTS
    end = TEXT.index("</think>") + len("</think>")
    assert reader.num_reasoning_tokens == sum(start < end for start in starts)


def test_an_answer_without_reasoning_counts_none() -> None:
    reader = reply()
    assert said(reader, ["Hello"], [(0, 2)]) == (Content("Hello"),)
    assert reader.num_reasoning_tokens == 0
    plain = ReplyReader(None, PlainReader())
    assert said(plain, ["<think>Hm</think>"], [(0,)]) == (Content("<think>Hm</think>"),)
    assert plain.num_reasoning_tokens == 0
