"""Grammars in EBNF, as llama.cpp (GBNF) and xgrammar write them: `root ::= "a" [0-9]+ | other`, read into a tree.

A rule ends where the next one begins, so it may take any number of lines. `#` begins a comment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from noria.structured.faults import GrammarFault

ROOT = "root"
_MAX_SHOWN = 40  # characters of what is at fault
_LAST_CHARACTER = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)
_ESCAPES = {"n": 10, "r": 13, "t": 9, "b": 8, "f": 12, "v": 11, "a": 7, "0": 0, "e": 27}
_DIGITS = {"x": 2, "u": 4, "U": 8}  # of a character's number
_TOKEN = re.compile(
    r"""
    (?P<space> [\ \t\r\n]+ | \#[^\n]* )
    | (?P<rule> [A-Za-z0-9_-]+ ) [\ \t\r\n]* ::=
    | (?P<name> [A-Za-z0-9_-]+ )
    | "(?P<text> (?:\\. | [^"\\\n])* )"
    | \[(?P<set> (?:\\. | [^\]\\\n])* )\]
    | (?P<count> \{ [\ \t]* \d{0,18} [\ \t]* (?:,[\ \t]* \d{0,18} [\ \t]*)? \} )
    | (?P<mark> \(= | [|()*+?.] )
    """,
    re.VERBOSE,
)
_ESCAPED = re.compile(r"\\u\{([0-9A-Fa-f]{1,6})\}|\\([xuU])([0-9A-Fa-f]*)|\\(.)|(.)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Text:
    value: str


@dataclass(frozen=True, slots=True)
class OneOf:
    """A character in one of the ranges, whose last ones are within them; is_not: in none of them."""

    ranges: tuple[tuple[int, int], ...]
    is_not: bool = False


@dataclass(frozen=True, slots=True)
class Reference:
    name: str


@dataclass(frozen=True, slots=True)
class Sequence:
    """One part after the other; nothing, if there are none."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the parts, of which there are at least two."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """most: None for any number, else at least 1."""

    part: Node
    least: int
    most: int | None


Node = Text | OneOf | Reference | Sequence | Choice | Repeat
_SIGNS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}


def rules_of(text: str) -> dict[str, Node]:
    """By name; `root` and all that are referred to are among them. Raises GrammarFault."""
    rules = _Reader(text).rules()
    if ROOT not in rules:
        raise GrammarFault(f"EBNF begins with a rule named `{ROOT}`, and there is none")
    for name, rule in rules.items():
        for used in references_in(rule):
            if used not in rules:
                raise GrammarFault(
                    f"the rule {name[:_MAX_SHOWN]!r} refers to {used[:_MAX_SHOWN]!r}, which is not defined"
                )
    return rules


def references_in(node: Node) -> Iterator[str]:
    left = [node]
    while left:
        one = left.pop()
        if isinstance(one, Reference):
            yield one.name
        elif isinstance(one, Repeat):
            left.append(one.part)
        elif isinstance(one, (Sequence, Choice)):
            left += one.parts


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._scan()
        self._kind, self._value, self._place = next(self._tokens)

    def rules(self) -> dict[str, Node]:
        rules: dict[str, Node] = {}
        while self._kind != "end":
            if self._kind != "rule":
                raise self._fault("a rule (`name ::= ...`) was expected")
            name = self._value
            if name in rules:
                raise self._fault(f"the rule {name[:_MAX_SHOWN]!r} is defined twice")
            self._next()
            rules[name] = self._choice()
            if self._value == ")":
                raise self._fault("there is no `(` to this `)`")
        return rules

    def _choice(self) -> Node:
        parts = [self._sequence()]
        while self._kind == "mark" and self._value == "|":
            self._next()
            parts.append(self._sequence())
        return parts[0] if len(parts) == 1 else Choice(tuple(parts))

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while self._kind not in ("rule", "end") and not (self._kind == "mark" and self._value in "|)"):
            part = self._item()
            while counts := self._counts():
                part = Repeat(part, *counts) if counts[1] != 0 else Text("")
            parts.append(part)
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _item(self) -> Node:
        kind, value = self._kind, self._value
        if kind == "mark" and value == "(":
            opened = self._fault("there is no `)` to this `(`")
            self._next()
            inner = self._choice()
            if self._kind != "mark" or self._value != ")":
                raise opened
            self._next()
            return inner
        made: Node
        if kind == "name":
            made = Reference(value)
        elif kind == "text":
            made = Text("".join(chr(code) for code, _ in self._characters(value)))
        elif kind == "set":
            made = self._set(value)
        elif kind == "mark" and value == ".":
            made = OneOf((), is_not=True)
        else:
            what = "an assertion of what follows" if value == "(=" else f"`{value}`"
            raise self._fault(f"{what} cannot be followed here")
        self._next()
        return made

    def _counts(self) -> tuple[int, int | None] | None:
        """Of what was read last."""
        if self._kind == "mark" and self._value in _SIGNS:
            found = _SIGNS[self._value]
        elif self._kind == "count":
            least, comma, most = (part.strip() for part in self._value[1:-1].partition(","))
            if not least and not most:
                raise self._fault("a count names a number: `{2}`, `{2,}`, `{2,5}` or `{,5}`")
            found = (int(least or 0), int(most) if most else None if comma else int(least))
            if found[1] is not None and found[1] < found[0]:
                raise self._fault("the first number of a count is the smaller one")
        else:
            return None
        self._next()
        return found

    def _set(self, body: str) -> OneOf:
        is_not = body.startswith("^")
        read = list(self._characters(body[is_not:]))
        ranges: list[tuple[int, int]] = []
        while read:
            first, _ = read.pop(0)
            last = first
            if len(read) >= 2 and read[0] == (ord("-"), False):
                last = read[1][0]
                del read[:2]
            if last < first:
                raise self._fault(f"the range from {chr(first)!r} to {chr(last)!r} holds nothing")
            ranges.append((first, last))
        if not ranges:
            raise self._fault("a set of characters holds at least one")
        return OneOf(tuple(ranges), is_not)

    def _characters(self, body: str) -> Iterator[tuple[int, bool]]:
        """Of a text or a set: the number of each, and whether it was escaped."""
        for braced, digits, escaped, plain in self._pieces(body):
            if plain:
                code = ord(plain)
            elif escaped:
                code = _ESCAPES.get(escaped, ord(escaped))
                if escaped.isalnum() and escaped not in _ESCAPES:
                    raise self._fault(f"the escape `\\{escaped}` is not known")
            else:
                code = int(braced or digits, 16)
            if code > _LAST_CHARACTER or code in _SURROGATES:
                raise self._fault(f"there is no character of the number {code:#x}")
            yield code, not plain

    def _pieces(self, body: str) -> Iterator[tuple[str, str, str, str]]:
        """A character each: by a number in braces, or by one that is as long as its kind, or escaped, or plain."""
        place = 0
        while place < len(body):
            found = _ESCAPED.match(body, place)
            assert found is not None, "any character matches"
            braced, kind, digits, escaped, plain = (part or "" for part in found.groups())
            place = found.end()
            if kind:
                count = _DIGITS[kind]
                if len(digits) < count:
                    raise self._fault(f"the escape `\\{kind}` has {count} hexadecimal digits")
                place -= len(digits) - count
                digits = digits[:count]
            yield braced, digits, escaped, plain

    def _scan(self) -> Iterator[tuple[str, str, int]]:
        """Kind, text and place of each token, the last of which is the end."""
        place = 0
        while place < len(self._text):
            found = _TOKEN.match(self._text, place)
            if found is None:
                self._place = place
                raise self._fault("this cannot be read")
            kind = found.lastgroup or ""
            if kind != "space":
                yield kind, found[kind], place
            place = found.end()
        yield "end", "", place

    def _next(self) -> None:
        self._kind, self._value, self._place = next(self._tokens)

    def _fault(self, what: str) -> GrammarFault:
        line = self._text.count("\n", 0, self._place) + 1
        here = self._text[self._place : self._place + _MAX_SHOWN].partition("\n")[0]
        return GrammarFault(f"in line {line}, at {here!r}: {what}" if here else f"at its end: {what}")
