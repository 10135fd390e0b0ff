"""EBNF in llguidance's dialect of Lark.

EBNF knows characters alone. Lark has terminals, which are fast, but of which each takes as much text as it can: behind
one of letters no rule would ever see another letter. So only that becomes a terminal which nothing that may follow can
continue, and which shares its beginning with no other; elsewhere character after character is looked at.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from noria.structured.ebnf import ROOT, Choice, Node, OneOf, Reference, Repeat, Text, rules_of
from noria.structured.ebnf_sets import ANYTHING, Beginnings
from noria.structured.faults import GrammarFault


def lark_of_ebnf(text: str, is_part: bool = False) -> str:
    """is_part: other text comes behind it, of which nothing is known. Raises GrammarFault."""
    try:
        rules = rules_of(text)
        known = Beginnings(rules, ANYTHING if is_part else 0)
        apart: set[Node] = set()
        while True:
            writer = _Writer(rules, known, apart)
            lark = writer.lark()
            if not (found := _at_odds(writer.terminals, known)):
                return lark
            apart |= found
    except RecursionError:
        raise GrammarFault("it is nested too deeply") from None


def _at_odds(terminals: Iterable[Node], known: Beginnings) -> set[Node]:
    """Those that may take text which another one begins with."""
    characters = 0
    texts: list[Text] = []
    others: list[Node] = []
    for one in terminals:
        if isinstance(one, OneOf) or (isinstance(one, Text) and len(one.value) == 1):
            characters |= known.first(one)
        elif isinstance(one, Text):
            texts.append(one)
        else:
            others.append(one)
    firsts = {one: known.first(one) for one in (*texts, *others)}
    of_texts = of_others = of_several = 0  # of any text, of any of the others, and of more than one of them
    for one in texts:
        of_texts |= firsts[one]
    for one in others:
        of_several |= of_others & firsts[one]
        of_others |= firsts[one]
    found: set[Node] = {one for one in texts if firsts[one] & (characters | of_others)}
    found |= {one for one in others if firsts[one] & (characters | of_texts | of_several)}
    return found | _beginnings_of_others(texts)


def _beginnings_of_others(texts: Iterable[Text]) -> set[Node]:
    """Both of each pair."""
    found: set[Node] = set()
    begun: list[Text] = []
    for text in sorted(texts, key=lambda one: one.value):
        while begun and not text.value.startswith(begun[-1].value):
            begun.pop()
        if begun:
            found |= {begun[-1], text}
        begun.append(text)
    return found


class _Writer:
    """apart: what is to be no terminal. terminals: that the rules hold, once they are written."""

    def __init__(self, rules: Mapping[str, Node], known: Beginnings, apart: set[Node]) -> None:
        self._rules = rules
        self._known = known
        self._apart = apart
        self._numbers = {name: number for number, name in enumerate(rules)}
        self._lines: dict[str, str] = {}  # by the name that a rule or a terminal has there
        self._left: list[str] = []  # rules that are referred to
        self._pieces: dict[Node, str] = {}
        self.terminals: set[Node] = set()

    def lark(self) -> str:
        self._rule(ROOT)
        while self._left:
            self._rule(self._left.pop())
        return "\n".join(f"{name}: {text}" for name, text in self._lines.items()) + "\n"

    def _rule(self, name: str) -> None:
        own = self._name(name)
        if own not in self._lines:
            self._lines[own] = ""  # its place is before those that it refers to
            self._lines[own] = self._written(self._rules[name], self._known.follows[name])

    def _name(self, name: str) -> str:
        return "start" if name == ROOT else f"r{self._numbers[name]}"

    def _written(self, node: Node, follow: int) -> str:
        """follow: what may come behind it."""
        known, bare = self._known, self._resolved(node)
        if isinstance(bare, (Text, OneOf)):
            return self._plain(bare)
        if isinstance(bare, Repeat) and bare.least == 0 and not known.is_nullable(bare.part):
            least_one = Repeat(bare.part, 1, bare.most)
            if self._is_terminal(least_one, follow):
                return f"{self._piece(least_one)}?"
        elif self._is_terminal(bare, follow):
            return self._piece(bare)
        if isinstance(node, Reference):
            self._left.append(node.name)
            return self._name(node.name)
        if isinstance(node, Repeat):
            again = follow | (known.first(node.part) if node.most != 1 else 0)
            return f"({self._written(node.part, again)}){_count(node)}"
        assert not isinstance(node, (Text, OneOf)), "these are written as they are"
        if isinstance(node, Choice):
            return "(" + " | ".join(self._written(part, follow) for part in node.parts) + ")"
        behind = known.behind(node.parts, follow)
        return (
            " ".join(self._written(part, then) for part, then in zip(node.parts, behind, strict=True)) or '""'
        )

    def _resolved(self, node: Node) -> Node:
        while isinstance(node, Reference) and node.name in self._known.regular:
            node = self._rules[node.name]
        return node

    def _plain(self, node: Text | OneOf) -> str:
        if isinstance(node, Text) and node in self._apart:
            return " ".join(self._plain(Text(one)) for one in node.value)
        if node != Text(""):
            self.terminals.add(node)
        return self._expression(node)

    def _is_terminal(self, node: Node, follow: int) -> bool:
        known = self._known
        if node in self._apart or not known.is_regular(node) or known.is_nullable(node):
            return False
        return not known.continuing(node) & follow

    def _piece(self, node: Node) -> str:
        """The name of a terminal of its own."""
        self.terminals.add(node)
        name = self._pieces.setdefault(node, f"P{len(self._pieces)}")
        if name not in self._lines:
            self._lines[name] = self._expression(node)
        return name

    def _expression(self, node: Node) -> str:
        """Within a terminal."""
        if isinstance(node, Text):
            return json.dumps(node.value, ensure_ascii=False)
        if isinstance(node, OneOf):
            inner = "".join(f"{_written(first)}-{_written(last)}" for first, last in node.ranges)
            return f"/[{'^' * node.is_not}{inner}]/" if inner else "/(?s:.)/"
        if isinstance(node, Reference):
            name = f"T{self._numbers[node.name]}"
            if name not in self._lines:
                self._lines[name] = self._expression(self._rules[node.name])
            return name
        if isinstance(node, Repeat):
            return f"({self._expression(node.part)}){_count(node)}"
        parts = [self._expression(part) for part in node.parts]
        if isinstance(node, Choice):
            return "(" + " | ".join(parts) + ")"
        return " ".join(parts) or '""'


def _count(node: Repeat) -> str:
    sign = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((node.least, node.most))
    return sign or f"{{{node.least},{'' if node.most is None else node.most}}}"


def _written(code: int) -> str:
    """A character of a set."""
    return f"\\x{{{code:02x}}}" if code < 128 else chr(code)
