"""Free text before what follows a grammar, in llguidance's words: the two are one grammar, so nobody else need know."""

from __future__ import annotations

import json

from noria.sampling.grammar import Marker, Prologue

_SPACE = r"/[\x20\x0A\x0D\x09]{1,20}/"
_ANSWER = "answer"


def with_prologue(source: str, prologue: Prologue) -> str:
    """source: a grammar as llguidance takes one, in its Lark or in JSON."""
    first, *others = json.loads(source)["grammars"] if source.startswith("{") else [{"lark_grammar": source}]
    head = {"lark_grammar": _head(prologue)}
    return json.dumps({"grammars": [head, {**first, "name": _ANSWER}, *others]})


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
