"""Texts and free text in llguidance's Lark, where a text may be, or hold, tokens of its own."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence

_FREE = "FREE"  # any text; tokens that have none of it are no part of it


class TagWriter:
    """Rules of one grammar, as they are made. special: ids of the special tokens, by their text."""

    def __init__(self, special: Mapping[str, int]) -> None:
        self._special = special
        self._split = (
            re.compile("|".join(map(re.escape, sorted(special, key=len, reverse=True)))) if special else None
        )
        self._lines = [f"{_FREE}: /(?s:.*)/"]
        self._others: list[dict[str, str]] = []

    def source(self, start: str) -> str:
        """The whole grammar, as llguidance takes one."""
        first = {"lark_grammar": "\n".join((f"start: {start}", *self._lines, ""))}
        return json.dumps({"grammars": [first, *self._others]})

    def rule(self, body: str, options: str = "") -> str:
        return self._add(f"part{len(self._lines)}", body, options)

    def terminal(self, body: str) -> str:
        """Of expressions and texts alone."""
        return self._add(f"PART{len(self._lines)}", body, "")

    def other(self, lark: str) -> str:
        """A grammar of its own."""
        name = f"other{len(self._others)}"
        self._others.append({"name": name, "lark_grammar": lark})
        return f"@{name}"

    def text(self, text: str) -> str:
        """Exactly that."""
        return " ".join(self._pieces(text)) or '""'

    def free(
        self, excluded: Sequence[str] = (), most: int | None = None, begins_not: str | None = None
    ) -> str:
        """Any text that holds none of some, of so many characters at most.

        begins_not: an expression that it must not begin with.
        """
        bounds = [_FREE if most is None else f"/(?s:.{{0,{most}}})/"]
        if excluded:
            bounds.append(f"~({_FREE} ({' | '.join(map(quoted, excluded))}) {_FREE})")
        if begins_not is not None:
            bounds.append(f"~({expression(begins_not)} {_FREE})")
        return _FREE if bounds == [_FREE] else self.terminal(" & ".join(bounds))

    def until(self, free: str, ends: Sequence[str]) -> str:
        """Free text up to the first of some texts, each with that one. ends: none is empty."""
        return either(self._up_to(free, end) for end in ends)

    def _up_to(self, free: str, end: str) -> str:
        first, *others = self._pieces(end)
        if first.startswith("<"):
            return " ".join((free, first, *others))
        return " ".join((self.rule(f"{free} {first}", "[lazy]"), *others))

    def _pieces(self, text: str) -> list[str]:
        """Its tokens, and the texts between them."""
        pieces, place = [], 0
        for found in self._split.finditer(text) if self._split is not None else ():
            pieces += [quoted(text[place : found.start()]), token(self._special[found[0]])]
            place = found.end()
        return [piece for piece in (*pieces, quoted(text[place:])) if piece != '""']

    def _add(self, name: str, body: str, options: str) -> str:
        self._lines.append(f"{name}{options}: {body}")
        return name


def quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def token(token_id: int) -> str:
    return f"<[{token_id}]>"


def expression(text: str) -> str:
    """A regular expression, which a slash or a line break does not end."""
    escaped = re.sub(r"\\.|/", lambda found: r"\/" if found[0] == "/" else found[0], text, flags=re.DOTALL)
    return f"/{escaped}/".replace("\n", r"\n")


def either(bodies: Iterable[str]) -> str:
    """One of some rules' bodies."""
    return f"({' | '.join(bodies)})"
