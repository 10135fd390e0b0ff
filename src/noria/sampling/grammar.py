"""What the text of an output must be: plain data, checked by whoever compiles it."""

from __future__ import annotations

from dataclasses import dataclass

from noria.config.errors import RequestError

MAX_TEXT = 1 << 20  # characters that are read of one

# kind -> what its text is
KINDS = {
    "json_schema": "a JSON schema, in JSON",
    "json_object": "empty: any JSON object",
    "regex": "a regular expression that the whole output matches",
    "choice": "a list of strings, in JSON, of which the output is one",
    "lark": "a grammar in llguidance's dialect of Lark, or in EBNF",
    "structural_tag": "a structural tag: a tree of formats, or free text with parts that follow schemas, in JSON",
}


@dataclass(frozen=True, slots=True)
class Marker:
    """text: as it is read in an output. token_id: of the special token that it is, whose text nothing else can be."""

    text: str
    token_id: int | None = None


@dataclass(frozen=True, slots=True)
class Prologue:
    """Free text before what must be followed: a model's reasoning.

    begin: None where the prompt has begun it; else it may be left out altogether, with its markers.
    """

    begin: Marker | None
    end: Marker


@dataclass(frozen=True, slots=True)
class Grammar:
    """kind: of KINDS, which says what text is. field: of the user's request, to blame it by.

    prologue: what may come before the text that is to follow it. begins_not: of a structural tag, an expression that
    no free text at its beginning begins with.
    """

    kind: str
    text: str = ""
    field: str = "grammar"
    prologue: Prologue | None = None
    begins_not: str = ""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise RequestError(
                f"{self.field} is of the kind {self.kind!r:.100}; known: {', '.join(KINDS)}", self.field
            )
        if not isinstance(self.text, str) or not _is_unicode(self.text):
            raise RequestError(f"{self.field} must be {KINDS[self.kind]}", self.field)
        if self.begins_not and self.kind != "structural_tag":
            raise RequestError(f"{self.field} has no free text that might begin with anything", self.field)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # of a lone surrogate
        return False
    return True
