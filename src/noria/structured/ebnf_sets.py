"""What the texts of a grammar in EBNF begin with, what may continue them, and what follows them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from noria.structured.ebnf import ROOT, Choice, Node, OneOf, Reference, Repeat, Sequence, Text, references_in

ANYTHING = (1 << 256) - 1
_NON_ASCII = ANYTHING ^ ((1 << 128) - 1)


class Beginnings:
    """All sets are of the first bytes of characters, a bit each. regular: the rules that are no part of themselves."""

    def __init__(self, rules: Mapping[str, Node], behind_root: int) -> None:
        self._rules = rules
        self._firsts = dict.fromkeys(rules, 0)
        self._nullables: set[str] = set()
        self._all = dict.fromkeys(rules, 0)
        self._continuing: dict[str, int] = {}
        self.follows = {**dict.fromkeys(rules, 0), ROOT: behind_root}
        self.regular = _regular_rules(rules)
        self._settle(self._learn)
        self._settle(lambda name: self._pass_on(rules[name], self.follows[name]))

    def first(self, node: Node) -> int:
        if isinstance(node, Text):
            return 1 << node.value[0].encode()[0] if node.value else 0
        if isinstance(node, OneOf):
            return _bytes_of(node)
        if isinstance(node, Reference):
            return self._firsts[node.name]
        if isinstance(node, Repeat):
            return self.first(node.part)
        found = 0
        for part in node.parts:
            found |= self.first(part)
            if isinstance(node, Sequence) and not self.is_nullable(part):
                break
        return found

    def is_nullable(self, node: Node) -> bool:
        """Whether it may be no text at all."""
        if isinstance(node, Text):
            return not node.value
        if isinstance(node, OneOf):
            return False
        if isinstance(node, Reference):
            return node.name in self._nullables
        if isinstance(node, Repeat):
            return node.least == 0 or self.is_nullable(node.part)
        return (all if isinstance(node, Sequence) else any)(map(self.is_nullable, node.parts))

    def is_regular(self, node: Node) -> bool:
        return all(name in self.regular for name in references_in(node))

    def continuing(self, node: Node) -> int:
        """Of something regular: what may come behind a whole text of it within a longer one; more, in doubt."""
        if isinstance(node, (Text, OneOf)):
            return 0
        if isinstance(node, Reference):
            if node.name not in self._continuing:
                self._continuing[node.name] = self.continuing(self._rules[node.name])
            return self._continuing[node.name]
        if isinstance(node, Choice):
            return self._continuing_choice(node)
        return self._continuing_repeat(node) if isinstance(node, Repeat) else self._continuing_parts(node)

    def letters(self, node: Node) -> int:
        """All that is in it."""
        if isinstance(node, Text):
            return sum(1 << byte for byte in {one.encode()[0] for one in node.value})
        if isinstance(node, OneOf):
            return _bytes_of(node)
        if isinstance(node, Reference):
            return self._all[node.name]
        found = 0
        for part in (node.part,) if isinstance(node, Repeat) else node.parts:
            found |= self.letters(part)
        return found

    def behind(self, parts: tuple[Node, ...], follow: int) -> list[int]:
        """What may come behind each of these, of which the last is followed so."""
        found = []
        for part in reversed(parts):
            found.append(follow)
            follow = self.first(part) | (follow if self.is_nullable(part) else 0)
        return found[::-1]

    def _continuing_parts(self, node: Sequence) -> int:
        found = 0  # of the parts so far
        for part in node.parts:
            first = self.first(part)
            if found & first:
                return self.letters(node)
            found = self.continuing(part) | (found | first if self.is_nullable(part) else 0)
        return found

    def _continuing_repeat(self, node: Repeat) -> int:
        found, first = self.continuing(node.part), self.first(node.part)
        if node.most == 1:
            return found | (first if node.least == 0 else 0)
        if found & first or self.is_nullable(node.part):
            return self.letters(node)
        is_exact = node.least == node.most
        return found if is_exact else found | first

    def _continuing_choice(self, node: Choice) -> int:
        found = firsts = 0
        for part in node.parts:
            if firsts & self.first(part):
                texts = [one.value for one in node.parts if isinstance(one, Text)]
                return _continuing_texts(texts) if len(texts) == len(node.parts) else self.letters(node)
            firsts |= self.first(part)
            found |= self.continuing(part)
        return found | (firsts if self.is_nullable(node) else 0)

    def _settle(self, learn: Callable[[str], None]) -> None:
        """Go through the rules until nothing is new: to and fro, since each learns of those that it refers to."""
        before, names = None, list(self._rules)
        while before != (
            now := (dict(self._firsts), set(self._nullables), dict(self._all), dict(self.follows))
        ):
            before = now
            for name in names:
                learn(name)
            names.reverse()

    def _learn(self, name: str) -> None:
        rule = self._rules[name]
        self._firsts[name] |= self.first(rule)
        self._all[name] |= self.letters(rule)
        if self.is_nullable(rule):
            self._nullables.add(name)

    def _pass_on(self, node: Node, follow: int) -> None:
        """To the rules within a node what follows it."""
        if isinstance(node, Reference):
            self.follows[node.name] |= follow
        elif isinstance(node, Repeat):
            self._pass_on(node.part, follow | (self.first(node.part) if node.most != 1 else 0))
        elif isinstance(node, Choice):
            for part in node.parts:
                self._pass_on(part, follow)
        elif isinstance(node, Sequence):
            for part, then in zip(node.parts, self.behind(node.parts, follow), strict=True):
                self._pass_on(part, then)


def _bytes_of(node: OneOf) -> int:
    """Beyond ASCII, all of them in doubt."""
    found = 0
    for first, last in node.ranges:
        found |= sum(1 << code for code in range(first, min(last, 127) + 1))
        found |= _NON_ASCII if last > 127 else 0
    return ~found & ((1 << 128) - 1) | _NON_ASCII if node.is_not else found


def _continuing_texts(texts: Iterable[str]) -> int:
    """How those go on that begin with others of them."""
    whole = set(texts)
    lengths = {len(one) for one in whole}
    found = 0
    for text in whole:
        for length in lengths:
            if length < len(text) and text[:length] in whole:
                found |= 1 << text[length].encode()[0]
    return found


def _regular_rules(rules: Mapping[str, Node]) -> set[str]:
    """Those that refer to none that is part of itself."""
    regular: set[str] = set()
    while found := {
        name
        for name, rule in rules.items()
        if name not in regular and all(used in regular for used in references_in(rule))
    }:
        regular |= found
    return regular
