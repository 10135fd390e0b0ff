"""Grammars in EBNF allow their sentences and nothing else."""

from __future__ import annotations

import json
import re
from functools import cache
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llguidance import LLMatcher, LLTokenizer

from noria.structured.ebnf_lark import lark_of_ebnf
from noria.structured.ebnf_sets import Beginnings
from noria.structured.faults import GrammarFault
from noria.structured.reading import compile_grammar, source_of

BYTES = LLTokenizer("byte")
QUERY = """
    root ::= query
    query ::= "SELECT " column " from " table " where " condition
    column ::= "col_1 " | "col_2 "
    table ::= "table_1 " | "table_2 "
    condition ::= column "= " number
    number ::= "1 " | "2 "
"""
SUMS = r"""
# a sum ::= of "terms"
root  ::= sum ws
sum   ::= term
        | sum ws [-+] ws term   # to the left
term  ::= number | "(" ws sum ws ")" | Var-name
number ::= [0-9]+ ("." [0-9]+)? ws
Var-name ::= [a-z_] [a-z0-9_]*
ws ::= [ \t\n]*
"""
VALUES = r"""
root ::= value
value ::= object | array | string | "true" | "null"
object ::= "{" (member ("," member)*)? "}"
member ::= string ":" value
array ::= "[" (value ("," value)*)? "]"
string ::= "\"" ([^"\\\x00-\x1f] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4}))* "\""
"""


@cache
def compiled(text: str) -> LLMatcher:
    return compile_grammar(BYTES, source_of("lark", text))


def allows(text: str, output: str) -> bool:
    """Whether the grammar, in EBNF, allows the whole of output and an end behind it."""
    matcher = compiled(text).deep_copy()
    return bool(matcher.consume_tokens(list(output.encode())) and matcher.is_accepting())


@pytest.mark.parametrize(
    ("text", "sentences", "others"),
    [
        (
            QUERY,
            ["SELECT col_1  from table_2  where col_2 = 1 "],
            ["SELECT col_3  from table_1  where col_2 = 1 ", "SELECT col_1  from table_2 "],
        ),
        (SUMS, ["1", "1.5 + (a_1-22)", "x -\n(y)  "], ["", "1.", "1 2", "(1", "1 + + 2", "A"]),
        (
            VALUES,
            ["{}", '{"a/b":[true,"\\u00e9","é\\n"],"":{"c":[]}}', '"[]"'],
            ["", "{", '"a', '{"a":}', '"\\u00g0"', '"\n"', "true false"],
        ),
        ('root ::= [a-z]+ "a"', ["ba", "aaa", "zebra"], ["a", "b", ""]),
        (
            'root ::= word "a" | "(" root ")"\nword ::= [a-z]+',
            ["ba", "aaa", "((zebra))"],
            ["a", "(a)", "(ba"],
        ),
        (
            'root ::= "<" digits "5" [0-9]{2} ">" | root root\ndigits ::= [0-9]{1,3}',
            ["<1500>", "<155599>", "<1512><55512>"],
            ["<500>", "<1600>", "<1234512>"],
        ),
        (
            'root ::= keyword "!" root | ""\nkeyword ::= "in" | "int" | "into"',
            ["", "in!into!int!"],
            ["inn!", "!"],
        ),
        ('root ::= root "b" | "a"', ["a", "abbb"], ["", "b", "ba"]),
        ('root ::= "" | "x" root "y"', ["", "xy", "xxyy"], ["x", "yx", "xyy"]),
        (
            'root ::=\n  "a" # one\n  "b"\n\n | "c"{2}\n | ("d" | "e"){,2} "f"\nunused ::= "g" root',
            ["ab", "cc", "f", "df", "edf"],
            ["a", "c", "ccc", "dedf", "gab"],
        ),
        (
            r'root ::= "\x41\u00e9\U0001F600\u{1F600}\t\"\\" [\]\-^\x2f] [^\]\n] [é-ü&&~~-] .',
            ['Aé😀😀\t"\\]xö\n', 'Aé😀😀\t"\\-/&x', 'Aé😀😀\t"\\/é~x', 'Aé😀😀\t"\\^x-é'],
            ['Aé😀😀\t"\\xxöx', 'Aé😀😀\t"\\]]öx', 'Aé😀😀\t"\\]xax', 'Aé😀😀\t"\\]x=x'],
        ),
        (
            "root ::= a-b | A_b\na-b ::= [0-9] a-b | [0-9]\nA_b ::= [x-z]{2,}",
            ["0", "123", "xyz"],
            ["x", "1x"],
        ),
        ('root ::= ("a"*)* "b" ("c"?){2} ("d"{0})', ["b", "aab", "bcc", "aabc"], ["a", "bccc", "bd"]),
    ],
)
def test_a_grammar_allows_its_sentences_and_nothing_else(
    text: str, sentences: list[str], others: list[str]
) -> None:
    assert [one for one in sentences if not allows(text, one)] == []
    assert [one for one in others if allows(text, one)] == []


PARTS = st.recursive(
    st.sampled_from([('"a"', "a"), ('"ab"', "ab"), ('"b"', "b"), ("[ab]", "[ab]"), ('""', "")]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda two: (f"{two[0][0]} {two[1][0]}", two[0][1] + two[1][1])),
        st.tuples(inner, inner).map(
            lambda two: (f"({two[0][0]} | {two[1][0]})", f"({two[0][1]}|{two[1][1]})")
        ),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}"])).map(
            lambda two: (f"({two[0][0]}){two[1]}", f"({two[0][1]}){two[1]}")
        ),
    ),
    max_leaves=5,
)


@settings(max_examples=150, deadline=None)
@given(first=PARTS, second=PARTS)
def test_rules_one_after_the_other_allow_what_their_expressions_do_together(
    first: tuple[str, str], second: tuple[str, str]
) -> None:
    text = f'root ::= x y | "(" root ")"\nx ::= {first[0]}\ny ::= {second[0]}'
    expression = re.compile(first[1] + second[1])
    for length in range(5):
        for letters in product("ab", repeat=length):
            output = "".join(letters)
            assert allows(text, output) == bool(expression.fullmatch(output)), output


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('start ::= "a"', "begins with a rule named `root`"),
        ("root ::= foo", "the rule 'root' refers to 'foo', which is not defined"),
        ('root ::= "a"\nroot ::= "b"', "the rule 'root' is defined twice"),
        ('root ::= "a', "in line 1, at '\"a': this cannot be read"),
        ('root ::= ("a"\nx ::= "b"', "there is no `)` to this `(`"),
        ('root ::= "a")', "there is no `(` to this `)`"),
        ('root ::= "a"\n  + | *', "`*` cannot be followed here"),
        ('root ::= "a" (= "b")', "an assertion of what follows cannot be followed here"),
        ("root ::= []", "a set of characters holds at least one"),
        ("root ::= [z-a]", "the range from 'z' to 'a' holds nothing"),
        (r'root ::= "\q"', "the escape `\\q` is not known"),
        (r'root ::= "\x4"', "the escape `\\x` has 2 hexadecimal digits"),
        (r'root ::= "\ud800"', "there is no character of the number 0xd800"),
        ('root ::= "a"{}', "a count names a number"),
        ('root ::= "a"{3,2}', "the first number of a count is the smaller one"),
        ('root ::= "a"{200000}', "may repeat 200000 times"),
        ('hello\nroot ::= "a"', "a rule (`name ::= ...`) was expected"),
        ("root ::= " + "(" * 30000 + '"a"' + ")" * 30000, "it is nested too deeply"),
        ("root ::= root", "it allows no text"),
    ],
)
def test_what_cannot_be_followed_is_told_with_its_place(text: str, words: str) -> None:
    with pytest.raises(GrammarFault, match=re.escape(words)):
        compile_grammar(BYTES, source_of("lark", text))


MANY = {
    "terminals of many rules": '{0} ::= "<{0}>" ("{0}" [a-z]* | root) "</{0}>"',
    "terminals that begin alike": '{0} ::= "{0}=" ([0-9]{{{1}}} "!") root "."',
    "characters": '{0} ::= "{0}:" [a-z]+ root | [0-9]',
}


@pytest.mark.parametrize("rule", MANY.values(), ids=MANY)
def test_each_piece_of_a_grammar_is_looked_at_as_often_in_a_large_one_as_in_a_small_one(
    rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    num_looks = 0
    first = Beginnings.first

    def counted(self: Beginnings, node: Any) -> int:
        nonlocal num_looks
        num_looks += 1
        return first(self, node)

    def looks(num_rules: int) -> int:
        nonlocal num_looks
        num_looks = 0
        names = [f"r{number}" for number in range(num_rules)]
        # Next to each other and one after the other.
        root = f"root ::= ({' | '.join(names)})* {' '.join(names)}"
        lark_of_ebnf("\n".join([root, *(rule.format(name, place) for place, name in enumerate(names, 1))]))
        return num_looks

    monkeypatch.setattr(Beginnings, "first", counted)
    assert looks(200) < 5 * looks(50)


def test_a_structural_tag_takes_ebnf_as_well() -> None:
    tag = {"format": {"type": "grammar", "grammar": 'root ::= "a" | "(" root ")"'}}
    matcher = compile_grammar(BYTES, source_of("structural_tag", json.dumps(tag)))
    assert matcher.consume_tokens(list(b"((a))"))
    assert matcher.is_accepting()
    tag["format"]["grammar"] = "root ::= b"
    with pytest.raises(GrammarFault, match=r"format\.grammar: the rule 'root' refers to 'b'"):
        source_of("structural_tag", json.dumps(tag))


def grammar(text: str) -> dict[str, str]:
    return {"type": "grammar", "grammar": text}


@pytest.mark.parametrize(
    ("tree", "outputs", "others"),
    [
        (
            {"type": "tag", "begin": "<a>", "content": grammar(r"root ::= [^\n]+"), "end": "</a>"},
            ["<a>hm</a>", "<a>x y.</a>"],
            ["<a>hm", "<a></a>", "<a>h\n</a>"],
        ),
        (
            {"type": "sequence", "elements": [grammar("root ::= [a-z]+"), grammar('root ::= "z9"')]},
            ["az9", "abcz9"],
            ["z", "a9"],
        ),
    ],
)
def test_ebnf_in_a_structural_tag_leaves_room_for_what_comes_behind_it(
    tree: dict[str, Any], outputs: list[str], others: list[str]
) -> None:
    matcher = compile_grammar(BYTES, source_of("structural_tag", json.dumps({"format": tree})))
    for output in outputs + others:
        one = matcher.deep_copy()
        is_allowed = bool(one.consume_tokens(list(output.encode())) and one.is_accepting())
        assert is_allowed == (output in outputs), output
