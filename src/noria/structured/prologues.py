"""Free text before what follows a grammar, in llguidance's words: the two are one grammar, so nobody else need know."""

from __future__ import annotations

import json
import re
from typing import Any

from noria.sampling.grammar import Marker, Prologue
from noria.structured.tag_members import BEGINS_NOT, Head

_SPACES = r"[\x20\x0A\x0D\x09]{1,20}"
_SPACE = f"/{_SPACES}/"
_ANSWER = "answer"


def with_prologue(source: str, prologue: Prologue) -> str:
    """source: a grammar as llguidance takes one, in its Lark or in JSON."""
    first, *others = json.loads(source)["grammars"] if source.startswith("{") else [{"lark_grammar": source}]
    head = {"lark_grammar": _head(prologue)}
    return json.dumps({"grammars": [head, {**first, "name": _ANSWER}, *others]})


def tree_with_prologue(tree: Any, prologue: Prologue) -> Any:
    """tree: the formats of a structural tag. Its text may be free, so the two are told apart by how they begin."""
    thought = [{"type": "any_text"}, _node(prologue.end)]
    begin = prologue.begin
    if begin is None:
        return {"type": "sequence", "elements": [*thought, tree]}
    if begin.token_id is not None:
        opening = [{"type": "optional", "content": {"type": "regex", "pattern": _SPACES}}, _node(begin)]
    else:
        escaped = re.sub(r"[^\w<>]", lambda found: f"\\x{{{ord(found[0]):x}}}", begin.text)
        opening = [{"type": "regex", "pattern": rf"({_SPACES})?{escaped}"}]
        tree = beginning_not(tree, rf"({_SPACES})?{escaped}")
    first = {"type": "optional", "content": {"type": "sequence", "elements": [*opening, *thought]}}
    return {"type": "sequence", "elements": [first, tree]}


def beginning_not(tree: Any, pattern: str) -> Any:
    """The same formats, whose free text at the beginning, if there is any, does not begin like that."""
    if not isinstance(tree, dict):
        return tree
    parts = tree.get("elements")
    if isinstance(parts, list) and tree.get("type") in ("sequence", "or"):
        last = 1 if tree["type"] == "sequence" else len(parts)
        return {**tree, "elements": [*(beginning_not(one, pattern) for one in parts[:last]), *parts[last:]]}
    if isinstance(own := tree.get(BEGINS_NOT), Head):
        pattern = f"({own.pattern}|{pattern})"
    return {**tree, BEGINS_NOT: Head(pattern)}


def _node(marker: Marker) -> dict[str, Any]:
    if marker.token_id is not None:
        return {"type": "token", "token": marker.token_id}
    return {"type": "const_string", "value": marker.text}


def _head(prologue: Prologue) -> str:
    thought = _up_to(prologue.end)
    if prologue.begin is None:
        return f"start: thought @{_ANSWER}\n{thought}"
    begin = _written(prologue.begin)
    return f"start: (SPACE? {begin} thought)? @{_ANSWER}\n{thought}SPACE: {_SPACE}\n"


def _up_to(end: Marker) -> str:
    """The first that comes ends it."""
    if end.token_id is not None:
        return f"thought: TEXT {_written(end)}\nTEXT: /(?s:.*)/\n"
    return f"thought[suffix={json.dumps(end.text, ensure_ascii=False)}]: /(?s:.*)/\n"


def _written(marker: Marker) -> str:
    if marker.token_id is not None:
        return f"<[{marker.token_id}]>"
    return json.dumps(marker.text, ensure_ascii=False)
