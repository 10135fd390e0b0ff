"""Structural tags as a tree of formats: what each allows, and what is refused by its place."""

from __future__ import annotations

import json
import re
from typing import Any

import llguidance
import numpy as np
import pytest

from noria.structured.faults import GrammarFault
from noria.structured.reading import compile_grammar, source_of

EOS, CALL, CALL_END = 256, 257, 258
SPECIAL = {"<call>": CALL, "</call>": CALL_END}
NUMBER = {"type": "json_schema", "json_schema": {"type": "integer"}}
HI = {"type": "const_string", "value": "hi"}
TEXT = {"type": "any_text"}


class Letters(llguidance.TokenizerWrapper):
    """A token a byte, and the special ones."""

    def __init__(self) -> None:
        self.is_tokenizer_wrapper = True
        self.eos_token_id, self.bos_token_id = EOS, None
        self.tokens = [*(bytes([i]) for i in range(256)), b"<end>", b"<call>", b"</call>"]
        self.special_token_ids = [EOS, CALL, CALL_END]

    def __call__(self, text: str | bytes) -> list[int]:
        return list(text.encode() if isinstance(text, str) else text)


VOCABULARY = llguidance.LLTokenizer(Letters(), n_vocab=259, eos_token=[EOS])


def ids_of(text: str) -> list[int]:
    pieces = re.split("(</?call>)", text)
    return [one for piece in pieces for one in ([SPECIAL[piece]] if piece in SPECIAL else piece.encode())]


def matcher_of(tree: Any) -> Any:
    return compile_grammar(
        VOCABULARY, source_of("structural_tag", json.dumps({"format": tree}), special=SPECIAL)
    )


def allowed(matcher: Any) -> set[int]:
    bits = np.unpackbits(np.frombuffer(matcher.compute_bitmask(), np.uint8), bitorder="little")
    return set(np.flatnonzero(bits).tolist())


def takes(tree: Any, text: str) -> bool:
    """Whether text is a whole output."""
    matcher = matcher_of(tree)
    for token_id in ids_of(text):
        if token_id not in allowed(matcher):
            return False
        assert matcher.consume_token(token_id)
    return EOS in allowed(matcher)


def tag(begin: Any, content: Any, end: Any) -> dict[str, Any]:
    return {"type": "tag", "begin": begin, "content": content, "end": end}


CALLS = {
    "type": "triggered_tags",
    "triggers": ["<f="],
    "tags": [tag("<f=a>", NUMBER, "</f>"), tag("<f=b>", HI, "</f>")],
}
TOKEN = {"type": "token", "token": "<call>"}
END_TOKEN = {"type": "token", "token": CALL_END}
TOKEN_CALLS = {
    "type": "token_triggered_tags",
    "trigger_tokens": ["<call>"],
    "tags": [tag(TOKEN, NUMBER, END_TOKEN)],
}
SEVERAL = {"type": "tags_with_separator", "tags": [tag("<", NUMBER, ">")], "separator": ", "}

CASES = [
    (HI, ["hi"], ["h", "hi ", ""]),
    (NUMBER, ["12", "-3"], ["x", "1.5"]),
    ({"type": "regex", "pattern": "a/[b]+\n"}, ["a/bb\n"], ["a/", "ab\n"]),
    ({"type": "regex", "pattern": "[a-z]+", "excludes": ["no"]}, ["yes", "on"], ["snow"]),
    ({"type": "grammar", "grammar": 'start: "x" y\ny: "z"+'}, ["xz", "xzz"], ["x"]),
    ({"type": "grammar", "grammar": 'start: "::=" /::=/ # ::='}, ["::=::="], ["::="]),
    (TEXT, ["", "any\n{text}"], ["<call>"]),
    ({"type": "any_text", "excludes": ["<f", "\n"]}, ["a <g"], ["a <f", "a\n"]),
    ({"type": "any_text", "max_chars": 3}, ["", "äöü"], ["abcd"]),
    ({"type": "sequence", "elements": [HI, NUMBER]}, ["hi7"], ["hi", "7"]),
    ({"type": "or", "elements": [HI, NUMBER]}, ["hi", "7"], ["hi7"]),
    ({"type": "optional", "content": HI}, ["", "hi"], ["hihi"]),
    ({"type": "star", "content": HI}, ["", "hihi"], ["hih"]),
    ({"type": "plus", "content": HI}, ["hi", "hihi"], [""]),
    ({"type": "repeat", "min": 1, "max": 2, "content": HI}, ["hi", "hihi"], ["", "hihihi"]),
    ({"type": "repeat", "min": 2, "max": -1, "content": HI}, ["hihi", "hihihi"], ["hi"]),
    (tag("<", NUMBER, [">", ")"]), ["<1>", "<1)"], ["<1", "<>"]),
    (tag("<", NUMBER, ""), ["<1"], ["<1>"]),
    (tag("<t>", TEXT, "</t>"), ["<t></t>", "<t>a </t</t>"], ["<t>a", "<t>a</t>b"]),
    (tag("<t>", TEXT, ["</t>", "!"]), ["<t>a</t>", "<t>a!"], ["<t>a!b", "<t>a!</t>"]),
    (tag(TOKEN, TEXT, END_TOKEN), ["<call>hm</call>"], ["<call>hm", "call"]),
    (tag("<call>", TEXT, "</call>"), ["<call>hm</call>"], ["<call>hm", "<call>a<call></call>"]),
    (SEVERAL, ["", "<1>", "<1>, <2>"], ["<1>,", "<1> <2>"]),
    ({**SEVERAL, "at_least_one": True}, ["<1>", "<1>, <2>"], [""]),
    ({**SEVERAL, "stop_after_first": True}, ["", "<1>"], ["<1>, <2>"]),
    ({**SEVERAL, "stop_after_first": True, "at_least_one": True}, ["<1>"], ["", "<1>, <2>"]),
    (
        CALLS,
        ["", "Say <f", "<f=a>7</f>", "Hm. <f=a>7</f> and <f=b>hi</f>!"],
        ["<f=", "<f=c>", "<f=a>x</f>", "<f=a>7", "a <f=b>7"],
    ),
    (
        {**CALLS, "at_least_one": True},
        ["<f=a>7</f>", "<f=a>7</f> x <f=b>hi</f>"],
        ["", "x", "<f=a>7</f> <f=c"],
    ),
    ({**CALLS, "stop_after_first": True}, ["", "x", "x <f=a>7</f>"], ["<f=a>7</f> "]),
    ({**CALLS, "stop_after_first": True, "at_least_one": True}, ["<f=b>hi</f>"], ["", "<f=a>7</f> "]),
    ({**CALLS, "excludes": ["stop"]}, ["<f=a>7</f>go"], ["stop", "<f=a>7</f>stop"]),
    (tag("[", CALLS, "]"), ["[]", "[x <f=a>7</f> y]"], ["[x", "[]]", "[x <f=a>]"]),
    (TOKEN_CALLS, ["", "x", "x<call>7</call>y<call>8</call>"], ["<call>", "<call>x", "</call>"]),
    (tag("[", TOKEN_CALLS, "]"), ["[x<call>7</call>y]"], ["[x<call>7</call>y"]),
    (
        {"type": "dispatch", "rules": [["<a>", HI], ["<call>", NUMBER]]},
        ["x<a>hi", "<a>hi<call>7", "<call>7 x"],
        ["<a>x", "<call>hi"],
    ),
    ({"type": "dispatch", "rules": [["<a>", HI]], "loop": False}, ["x<a>hi", "x"], ["<a>hi "]),
    ({"type": "token_dispatch", "rules": [[CALL, HI]]}, ["x<call>hi y"], ["<call>x"]),
    (
        {"type": "sequence", "elements": [TEXT, {"type": "const_string", "value": "="}, NUMBER]},
        ["=1", "a b=1"],
        ["a b", "a=b"],
    ),
    ({"type": "sequence", "elements": [HI, TEXT, TOKEN]}, ["hi<call>", "hi x<call>"], ["hi x"]),
    (
        {"type": "sequence", "elements": [tag("<t>", TEXT, "</t>"), CALLS]},
        ["<t>hm</t>ok", "<t><f=c></t><f=a>1</f>"],
        ["ok", "<t>hm</t><f=c"],
    ),
]


@pytest.mark.parametrize(("tree", "good", "bad"), CASES)
def test_each_format_allows_what_it_describes_and_nothing_else(
    tree: Any, good: list[str], bad: list[str]
) -> None:
    assert {text: takes(tree, text) for text in (*good, *bad)} == {
        **dict.fromkeys(good, True),
        **dict.fromkeys(bad, False),
    }


REFUSED = [
    (5, "format is of the type 'None'"),
    (
        {"type": "any_tokens"},
        "format is of the type 'any_tokens'; those that can be followed are const_string",
    ),
    ({"type": "const_string"}, "format.value must be a string"),
    ({**NUMBER, "style": "qwen_xml"}, "format.style cannot be followed here"),
    ({**NUMBER, "any_order": True}, "format.any_order cannot be followed here"),
    ({"type": "json_schema", "json_schema": []}, "format.json_schema must be an object"),
    ({**TEXT, "max_tokens": 5}, "format.max_tokens cannot be followed here"),
    ({**TEXT, "max_chars": 10**9}, "format.max_chars must be a whole number from 0 to 100000"),
    ({"type": "grammar", "grammar": 'root ::= "a'}, "format.grammar: in line 1"),
    ({"type": "regex", "pattern": "a{1000000}"}, "may repeat"),
    ({"type": "sequence", "elements": []}, "format.elements must be a list, and not empty"),
    ({"type": "sequence", "elements": [TEXT, NUMBER]}, "format.elements[0] may go on for ever"),
    ({"type": "star", "content": TEXT}, "format.content may go on for ever"),
    (
        {"type": "star", "content": {"type": "or", "elements": [HI, TEXT]}},
        "format.content may go on for ever",
    ),
    ({"type": "repeat", "min": 3, "max": 1, "content": HI}, "format.max is 1, below its min of 3"),
    ({"type": "or", "elements": [HI, {"type": "star"}]}, "format.elements[1].content is of the type 'None'"),
    (tag("<", HI, 5), "format.end must be a string"),
    (tag("<", {"type": "tag"}, ">"), "format.content.begin must be a string"),
    ({**CALLS, "triggers": ["<g"]}, "no trigger begins format.tags[0], which begins with '<f=a>'"),
    ({**CALLS, "tags": [HI]}, "format.tags[0] must be a format of the type tag"),
    ({"type": "token", "token": "call"}, "format.token must be a special token of the model or the id"),
    ({"type": "token", "token": True}, "format.token must be a special token of the model or the id"),
    ({**TOKEN_CALLS, "exclude_tokens": [3]}, "format.exclude_tokens cannot be followed here"),
    ({**CALLS, "triggers": ["<f=", "<g"]}, "format.triggers[1] begins none of the tags"),
    ({**TOKEN_CALLS, "trigger_tokens": [CALL, CALL_END]}, "format.trigger_tokens[1] begins none of the tags"),
    ({**CALLS, "at_least_one": "false"}, "format.at_least_one must be true or false"),
    ({**SEVERAL, "at_least_one": 1}, "format.at_least_one must be true or false"),
    ({**SEVERAL, "stop_after_first": []}, "format.stop_after_first must be true or false"),
    ({"type": "dispatch", "rules": [["<a>", HI]], "loop": 0}, "format.loop must be true or false"),
    ({"type": "dispatch", "rules": [["<a>", HI]], "at_least_one": True}, "format.at_least_one cannot"),
    ({**CALLS, "tags": [{**CALLS["tags"][0], "max_tokens": 3}]}, "format.tags[0].max_tokens cannot"),
    ({**TEXT, "begins_not": "a"}, "format.begins_not cannot be followed here"),
    ({"type": "dispatch", "rules": [["<a>"]]}, "format.rules[0] must be a list of what is met and a format"),
    ({"type": "dispatch", "rules": [["<a>", TEXT]]}, "format.rules[0][1] may go on for ever"),
]


@pytest.mark.parametrize(("tree", "told"), REFUSED)
def test_what_cannot_be_followed_is_refused_by_its_place(tree: Any, told: str) -> None:
    with pytest.raises(GrammarFault, match=re.escape(told)):
        matcher_of(tree)


@pytest.mark.parametrize("tree", {tree["type"]: tree for tree, _, _ in CASES}.values())
def test_no_format_passes_over_a_member_that_it_does_not_know(tree: Any) -> None:
    told = re.escape("format.elements[0].maxchars cannot be followed here; leave it out")
    with pytest.raises(GrammarFault, match=told):
        matcher_of({"type": "or", "elements": [{**tree, "maxchars": 3}]})
    assert matcher_of({**tree, "maxchars": None})  # which says nothing


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"format": HI, "triggers": ["<"]}, "structural_tag.triggers cannot be followed here"),
        ({"structures": [], "at_least_one": True}, "it needs `structures`"),
        ({"structures": [{}], "triggers": ["<"], "at_least_one": True}, "structural_tag.at_least_one"),
        (
            {"structures": [{"begin": "<", "schema": {}, "end": ">", "strict": True}], "triggers": ["<"]},
            "a structure.strict cannot be followed here",
        ),
    ],
)
def test_neither_does_what_holds_the_formats(asked: Any, told: str) -> None:
    with pytest.raises(GrammarFault, match=re.escape(told)):
        source_of("structural_tag", json.dumps({"type": "structural_tag", **asked}))


def test_nesting_beyond_reason_is_refused() -> None:
    tree: Any = HI
    for _ in range(900):
        tree = {"type": "optional", "content": tree}
    with pytest.raises(GrammarFault):
        matcher_of(tree)


def test_the_older_form_knows_special_tokens_and_texts_alike() -> None:
    structures = [
        {"begin": "<call>", "schema": {"type": "integer"}, "end": "</call>"},
        {"begin": "<f>", "schema": {"type": "integer"}, "end": "</f>"},
    ]
    text = json.dumps({"structures": structures, "triggers": ["<call>", "<f>"]})
    matcher = compile_grammar(VOCABULARY, source_of("structural_tag", text, special=SPECIAL))
    assert matcher.consume_tokens(ids_of("a<call>7</call>b<f>8</f>"))
    assert {EOS, ord("x"), CALL} <= allowed(matcher)
    assert CALL_END not in allowed(matcher)
