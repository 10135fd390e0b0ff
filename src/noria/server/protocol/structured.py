"""What request fields say the text of an answer must be."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from noria.sampling.grammar import Grammar
from noria.server.errors import ApiError

_FORMATS = ("text", "json_object", "json_schema", "structural_tag")
# field of structured_outputs -> the kind of grammar. Exactly one is stated.
_KINDS = {
    "json": "json_schema",
    "regex": "regex",
    "choice": "choice",
    "grammar": "lark",
    "json_object": "json_object",
    "structural_tag": "structural_tag",
}
_AS_TEXT = ("json_schema", "choice", "structural_tag")  # kinds whose text is JSON, which may come as it is


def grammar_of(structured_outputs: Any, form: Any, form_field: str) -> Grammar | None:
    """form: what the protocol's own field of that name says of the answer's form. Raises ApiError naming the field."""
    own = _read_format(form, form_field)
    other = _read_structured_outputs(structured_outputs)
    if own is not None and other is not None:
        raise ApiError(f"state either {form_field} or structured_outputs", param="structured_outputs")
    return own or other


def _read_format(form: Any, field: str) -> Grammar | None:
    if form is None:
        return None
    kind = form.get("type") if isinstance(form, dict) else None
    if kind == "text":
        return None
    if kind == "json_object":
        return Grammar("json_object", field=field)
    if kind == "json_schema":
        return Grammar("json_schema", json.dumps(_schema_of(form, field)), field)
    if kind == "structural_tag":
        return Grammar("structural_tag", json.dumps(form), field)
    raise ApiError(f"{field}.type must be one of {', '.join(_FORMATS)}", param=field)


def _schema_of(form: Mapping[str, Any], field: str) -> dict[str, Any]:
    """Chats put it into an object of its own, with its name; the others beside the type."""
    holder = form if "schema" in form else form.get("json_schema")
    if not isinstance(holder, dict):
        raise ApiError(f"{field} of type json_schema needs an object `json_schema`", param=field)
    schema = holder.get("schema")
    if not isinstance(schema, dict):
        raise ApiError(f"{field} of type json_schema needs an object `schema`", param=field)
    return schema


def _read_structured_outputs(asked: Any) -> Grammar | None:
    if asked is None:
        return None
    if not isinstance(asked, dict):
        raise ApiError("structured_outputs must be an object", param="structured_outputs")
    stated = [name for name in _KINDS if asked.get(name) is not None and asked[name] is not False]
    unknown = [name for name in asked if name not in _KINDS and asked[name] not in (None, False)]
    if len(stated) != 1 or unknown:
        got = ", ".join([*stated, *(repr(name)[:50] for name in unknown[:5])]) or "none"
        raise ApiError(
            f"structured_outputs must hold one of {', '.join(_KINDS)}, got {got}", param="structured_outputs"
        )
    (name,) = stated
    return _grammar(name, asked[name])


def _grammar(name: str, value: Any) -> Grammar:
    kind, field = _KINDS[name], f"structured_outputs.{name}"
    if kind == "json_object":
        return Grammar(kind, field=field)
    text = json.dumps(value) if kind in _AS_TEXT and not isinstance(value, str) else value
    return Grammar(kind, text, field)
