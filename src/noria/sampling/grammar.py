"""What the text of an output must be: plain data, checked by whoever compiles it."""

from __future__ import annotations

from dataclasses import dataclass

from noria.config.errors import RequestError

# kind -> what its text is
KINDS = {
    "json_schema": "a JSON schema, in JSON",
    "json_object": "empty: any JSON object",
    "regex": "a regular expression that the whole output matches",
    "choice": "a list of strings, in JSON, of which the output is one",
    "lark": "a grammar in llguidance's dialect of Lark",
    "structural_tag": "free text with marked parts that follow schemas of their own, in JSON",
}


@dataclass(frozen=True, slots=True)
class Grammar:
    """kind: of KINDS, which says what text is. field: of the user's request, to blame it by."""

    kind: str
    text: str = ""
    field: str = "grammar"

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise RequestError(
                f"{self.field} is of the kind {self.kind!r:.100}; known: {', '.join(KINDS)}", self.field
            )
        if not isinstance(self.text, str) or not _is_unicode(self.text):
            raise RequestError(f"{self.field} must be {KINDS[self.kind]}", self.field)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # of a lone surrogate
        return False
    return True
