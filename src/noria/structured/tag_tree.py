"""Structural tags: a text described by a tree of formats, each a part of it, in the words of llguidance."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from noria.structured.ebnf_lark import lark_of_ebnf
from noria.structured.faults import GrammarFault
from noria.structured.repeats import MAX_REPEATS, check_lark, check_regex, check_schema, is_ebnf
from noria.structured.tag_members import BEGINS_NOT, MAX_SHOWN, Head, check_members, flag
from noria.structured.tag_text import TagWriter, either, expression, token

# Those that go on until something ends them.
_ENDLESS = frozenset(("any_text", "triggered_tags", "token_triggered_tags", "dispatch", "token_dispatch"))

Node = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _End:
    """What stands behind a part, and is read with it. texts: one of them; none, or an empty one: nothing.
    token: instead, in the words of a grammar.
    """

    texts: tuple[str, ...] = ()
    token: str = ""

    @property
    def is_open(self) -> bool:
        return not self.token and "" in (self.texts or ("",))


_NOTHING = _End()


class TagTree:
    """Reads a tree. special: ids of the special tokens, by their text. json_options: of every schema in it."""

    def __init__(self, special: Mapping[str, int], json_options: Mapping[str, Any]) -> None:
        self._writer = TagWriter(special)
        self._json_options = json_options
        self._readers: dict[str, Callable[[Node, _End, str], str]] = {
            "const_string": self._const_string,
            "json_schema": self._json_schema,
            "regex": self._regex,
            "grammar": self._grammar,
            "token": self._token,
            "any_text": self._any_text,
            "sequence": self._sequence,
            "or": self._or,
            "optional": self._repeated(0, 1),
            "star": self._repeated(0, -1),
            "plus": self._repeated(1, -1),
            "repeat": self._repeat,
            "tag": self._tag,
            "tags_with_separator": self._tags_with_separator,
            "triggered_tags": self._triggered_tags,
            "token_triggered_tags": self._token_triggered_tags,
            "dispatch": self._dispatch,
            "token_dispatch": self._dispatch,
        }

    def source(self, tree: Any) -> str:
        """The grammar of a whole output. Raises GrammarFault, which names the part that cannot be followed."""
        return self._writer.source(self._read(tree, _NOTHING, "format"))

    def _read(self, node: Any, end: _End, where: str) -> str:
        """The body of a rule: a part, and what stands behind it."""
        kind = node.get("type") if isinstance(node, dict) else None
        if not isinstance(kind, str) or kind not in self._readers:
            raise GrammarFault(
                f"{where} is of the type {str(kind)[:MAX_SHOWN]!r}; those that can be followed are "
                f"{', '.join(self._readers)}"
            )
        check_members(kind, node, where)
        if kind not in _ENDLESS and not self._ends_itself(node):
            return f"{self._readers[kind](node, _NOTHING, where)} {self._behind(end)}"
        return self._readers[kind](node, end, where)

    @staticmethod
    def _ends_itself(node: Node) -> bool:
        """Whether its reader sees to what stands behind it."""
        return node["type"] in ("sequence", "or")

    def _behind(self, end: _End) -> str:
        if end.token or not any(end.texts):
            return end.token
        one = either(self._writer.text(text) for text in end.texts if text)
        return f"{one}?" if end.is_open else one

    def _const_string(self, node: Node, end: _End, where: str) -> str:
        return self._writer.text(_text(node, "value", where))

    def _json_schema(self, node: Node, end: _End, where: str) -> str:
        schema = node.get("json_schema")
        if schema is True:
            schema = {}
        if not isinstance(schema, dict):
            raise GrammarFault(f"{where}.json_schema must be an object, a JSON schema")
        check_schema(schema)
        options = {**self._json_options, **(schema.get("x-guidance") or {})}
        return self._writer.rule(f"%json {json.dumps({**schema, 'x-guidance': options})}")

    def _regex(self, node: Node, end: _End, where: str) -> str:
        pattern = _text(node, "pattern", where)
        check_regex(pattern)
        if not pattern:
            raise GrammarFault(f"{where}.pattern is empty")
        excluded = _texts(node, "excludes", where)
        bounds = [expression(pattern), *([self._writer.free(excluded)] if excluded else ())]
        return self._writer.terminal(" & ".join(bounds))

    def _grammar(self, node: Node, end: _End, where: str) -> str:
        lark = _text(node, "grammar", where)
        if is_ebnf(lark):
            try:
                lark = lark_of_ebnf(lark, is_part=True)
            except GrammarFault as fault:
                raise GrammarFault(f"{where}.grammar: {fault}") from None
        check_lark(lark)
        return self._writer.other(lark)

    def _token(self, node: Node, end: _End, where: str) -> str:
        return self._token_of(node.get("token"), f"{where}.token")

    def _token_of(self, asked: Any, where: str) -> str:
        if isinstance(asked, int) and not isinstance(asked, bool) and asked >= 0:
            return token(asked)
        written = self._writer.text(asked) if isinstance(asked, str) else ""
        if not written.startswith("<") or " " in written:
            raise GrammarFault(
                f"{where} must be a special token of the model or the id of a token, got {str(asked)[:MAX_SHOWN]!r}"
            )
        return written

    def _any_text(self, node: Node, end: _End, where: str) -> str:
        most = (
            _count(node.get("max_chars"), f"{where}.max_chars") if node.get("max_chars") is not None else None
        )
        free = self._writer.free(_texts(node, "excludes", where), most, _begins_not(node))
        return self._ended(free, end)

    def _ended(self, free: str, end: _End) -> str:
        if end.token:
            return f"{free} {end.token}"
        return free if end.is_open else self._writer.until(free, end.texts)

    def _sequence(self, node: Node, end: _End, where: str) -> str:
        """What goes on until something ends it is ended by the text or the token behind it."""
        parts, written = _list(node, "elements", where), []
        place = 0
        while place < len(parts):
            part, here = parts[place], f"{where}.elements[{place}]"
            place += 1
            is_last = place == len(parts)
            behind = end if is_last else _NOTHING
            if not is_last and _is_endless(part):
                behind = self._end_at(parts[place], here)
                place += 1
                if place == len(parts):
                    written.append(f"{self._read(part, behind, here)} {self._behind(end)}")
                    continue
            written.append(self._read(part, behind, here))
        return f"({' '.join(written)})"

    def _end_at(self, node: Any, where: str) -> _End:
        kind = node.get("type") if isinstance(node, dict) else None
        if kind == "const_string" and node.get("value"):
            return _End((_text(node, "value", where),))
        if kind == "token":
            return _End(token=self._token(node, _NOTHING, where))
        raise GrammarFault(
            f"{where} may go on for ever: put it into a tag, at the end, or before a const_string or a token"
        )

    def _or(self, node: Node, end: _End, where: str) -> str:
        choices = _list(node, "elements", where)
        return either(
            self._read(choice, end, f"{where}.elements[{place}]") for place, choice in enumerate(choices)
        )

    def _repeated(self, least: int, most: int) -> Callable[[Node, _End, str], str]:
        def read(node: Node, end: _End, where: str) -> str:
            content = node.get("content")
            if _is_endless(content):
                raise GrammarFault(f"{where}.content may go on for ever: put it into a tag")
            # A rule of its own: what is counted must not be read anew for each time.
            one = self._writer.rule(self._read(content, _NOTHING, f"{where}.content"))
            return f"{one}{_COUNTS.get((least, most)) or _counted(least, most)}"

        return read

    def _repeat(self, node: Node, end: _End, where: str) -> str:
        least = _count(node.get("min"), f"{where}.min")
        most = -1 if node.get("max") == -1 else _count(node.get("max"), f"{where}.max")
        if -1 < most < least:
            raise GrammarFault(f"{where}.max is {most}, below its min of {least}")
        return self._repeated(least, most)(node, end, where)

    def _tag(self, node: Node, end: _End, where: str) -> str:
        begin = node.get("begin")
        if isinstance(begin, dict):
            written = self._read(begin, _NOTHING, f"{where}.begin")
        else:
            written = self._writer.text(_text(node, "begin", where))
        return f"{written} {self._body(node, where)}"

    def _body(self, node: Node, where: str) -> str:
        """A tag behind its begin marker."""
        asked = node.get("end")
        if isinstance(asked, dict):
            end = _End(token=self._read(asked, _NOTHING, f"{where}.end").strip())
        else:
            texts: list[Any] = asked if isinstance(asked, list) else [asked]
            if not texts or not all(isinstance(text, str) for text in texts):
                raise GrammarFault(f"{where}.end must be a string, a list of strings or a token")
            end = _End(tuple(texts))
        return self._read(node.get("content"), end, f"{where}.content")

    def _tags_with_separator(self, node: Node, end: _End, where: str) -> str:
        tags = _tags(node, where)
        one = self._writer.rule(either(self._tag(tag, _NOTHING, here) for here, tag in tags))
        between = self._separator(node, where)
        several = one if flag(node, "stop_after_first", where) else f"{one} ({between} {one})*"
        return f"({several})" if flag(node, "at_least_one", where) else f"({several})?"

    def _separator(self, node: Node, where: str) -> str:
        asked = node.get("separator")
        if isinstance(asked, dict) and not _is_endless(asked):
            return self._read(asked, _NOTHING, f"{where}.separator")
        return self._writer.text(_text(node, "separator", where))

    def _triggered_tags(self, node: Node, end: _End, where: str) -> str:
        triggers = _texts(node, "triggers", where)
        tags = _tags(node, where)
        bodies: dict[str, list[str]] = {}
        for here, tag in tags:
            begin = _text(tag, "begin", here)
            trigger = next((one for one in triggers if one and begin.startswith(one)), None)
            if trigger is None:
                raise GrammarFault(f"no trigger begins {here}, which begins with {begin[:MAX_SHOWN]!r}")
            rest = self._writer.text(begin.removeprefix(trigger))
            bodies.setdefault(trigger, []).append(f"{rest} {self._body(tag, here)}")
        for place, one in enumerate(triggers):
            if not any(tag["begin"].startswith(one) for _, tag in tags):
                raise GrammarFault(f"{where}.triggers[{place}] begins none of the tags")
        found = [(trigger, either(several)) for trigger, several in bodies.items()]
        return self._free_with(node, found, end, where)

    def _token_triggered_tags(self, node: Node, end: _End, where: str) -> str:
        triggers = [
            self._token_of(one, f"{where}.trigger_tokens") for one in _list(node, "trigger_tokens", where)
        ]
        bodies: dict[str, list[str]] = {}
        for here, tag in _tags(node, where):
            trigger = self._read(tag.get("begin"), _NOTHING, f"{here}.begin").strip()
            if trigger not in triggers:
                raise GrammarFault(f"no trigger begins {here}")
            bodies.setdefault(trigger, []).append(self._body(tag, here))
        for place, one in enumerate(triggers):
            if one not in bodies:
                raise GrammarFault(f"{where}.trigger_tokens[{place}] begins none of the tags")
        found = [(_End(token=trigger), either(several)) for trigger, several in bodies.items()]
        return self._free_with(node, found, end, where)

    def _dispatch(self, node: Node, end: _End, where: str) -> str:
        is_of_tokens, found = node["type"] == "token_dispatch", []
        for place, rule in enumerate(_list(node, "rules", where)):
            here = f"{where}.rules[{place}]"
            if not isinstance(rule, list) or len(rule) != 2 or not rule[0]:
                raise GrammarFault(f"{here} must be a list of what is met and a format")
            if _is_endless(rule[1]):
                raise GrammarFault(f"{here}[1] may go on for ever: put it into a tag")
            trigger = _End(token=self._token_of(rule[0], f"{here}[0]")) if is_of_tokens else rule[0]
            if not isinstance(trigger, (str, _End)):
                raise GrammarFault(f"{here}[0] must be a string")
            found.append((trigger, self._read(rule[1], _NOTHING, f"{here}[1]")))
        stops = not flag(node, "loop", where, usual=True)
        return self._free_with({**node, "stop_after_first": stops}, found, end, where)

    def _free_with(self, node: Node, found: Sequence[tuple[str | _End, str]], end: _End, where: str) -> str:
        """Free text, in which what is met begins a part. found: with what follows what is met."""
        excluded = _texts(node, "excludes", where)
        free = self._writer.free(excluded)
        one = self._writer.rule(either(f"{self._met(free, what)} {body}" for what, body in found))
        tail = self._ended(free, end)
        after = self._behind(end) if flag(node, "stop_after_first", where) else f"{one}* {tail}"
        if flag(node, "at_least_one", where):
            return f"{either(f'{self._written(what)} {body}' for what, body in found)} {after}"
        first = one
        if (begins_not := _begins_not(node)) is not None:
            head = self._writer.free(excluded, begins_not=begins_not)
            first = self._writer.rule(either(f"{self._met(head, what)} {body}" for what, body in found))
            tail_alone = self._ended(head, end)
        else:
            tail_alone = tail
        return f"({first} {after} | {tail_alone})"

    def _met(self, free: str, what: str | _End) -> str:
        return f"{free} {what.token}" if isinstance(what, _End) else self._writer.until(free, (what,))

    def _written(self, what: str | _End) -> str:
        return what.token if isinstance(what, _End) else self._writer.text(what)


_COUNTS = {(0, 1): "?", (0, -1): "*", (1, -1): "+"}


def _counted(least: int, most: int) -> str:
    return f"{{{least},{'' if most < 0 else most}}}"


def _is_endless(node: Any) -> bool:
    if not isinstance(node, dict):
        return False
    if node.get("type") in ("sequence", "or") and isinstance(node.get("elements"), list):
        parts = node["elements"]
        return any(map(_is_endless, parts if node["type"] == "or" else parts[-1:]))
    return node.get("type") in _ENDLESS


def _text(node: Node, name: str, where: str) -> str:
    text = node.get(name)
    if not isinstance(text, str):
        raise GrammarFault(f"{where}.{name} must be a string")
    return text


def _texts(node: Node, name: str, where: str) -> list[str]:
    texts = node.get(name) or []
    if not isinstance(texts, list) or not all(isinstance(text, str) and text for text in texts):
        raise GrammarFault(f"{where}.{name} must be a list of strings, none of them empty")
    return texts


def _begins_not(node: Node) -> str | None:
    head = node.get(BEGINS_NOT)
    return head.pattern if isinstance(head, Head) else None


def _list(node: Node, name: str, where: str) -> list[Any]:
    found = node.get(name)
    if not isinstance(found, list) or not found:
        raise GrammarFault(f"{where}.{name} must be a list, and not empty")
    return found


def _tags(node: Node, where: str) -> list[tuple[str, Node]]:
    """Each with where it is."""
    tags = [(f"{where}.tags[{place}]", tag) for place, tag in enumerate(_list(node, "tags", where))]
    for here, tag in tags:
        if not isinstance(tag, dict) or tag.get("type", "tag") != "tag":
            raise GrammarFault(f"{here} must be a format of the type tag")
        check_members("tag", tag, here)
    return tags


def _count(value: Any, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_REPEATS:
        raise GrammarFault(
            f"{where} must be a whole number from 0 to {MAX_REPEATS}, got {str(value)[:MAX_SHOWN]}"
        )
    return value
