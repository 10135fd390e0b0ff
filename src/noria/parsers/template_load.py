"""Checking a checkpoint's `response_template`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from noria.config.errors import ConfigError
from noria.parsers.template import Delimiter, Field, ResponseTemplate, Role
from noria.parsers.template_values import CONTENTS, PLACEHOLDER, BadArguments, check_content

_TOP_KEYS = frozenset(("version", "defaults", "fields", "start_anchor", "start_anchor_pattern"))
_ENDS = frozenset(("open", "open_pattern", "close", "close_pattern"))
_SWITCHES = ("repeats", "optional", "transform_each")
_FIELD_KEYS = _ENDS | {"content", "content_args", "join", "transform", *_SWITCHES}
_ROLES = {
    "content": Role.CONTENT,
    "thinking": Role.REASONING,
    "reasoning": Role.REASONING,
    "reasoning_content": Role.REASONING,
    "tool_calls": Role.CALLS,
}


def load_template(raw: Any) -> ResponseTemplate:
    """Raises ConfigError, which names the field, for what is no response template, or asks for what is not there."""
    if not isinstance(raw, Mapping):
        raise _fault("it", f"an object, got {type(raw).__name__}")
    _check_keys("it", raw, _TOP_KEYS)
    if raw.get("version", 1) != 1:
        raise _fault("version", f"1, got {raw['version']!r}")
    defaults = raw.get("defaults", {})
    if not isinstance(defaults, Mapping):
        raise _fault("defaults", "an object")
    for name, value in defaults.items():
        if name != "role" and value:
            raise _fault(f"defaults.{name}", f"empty: answers have a role of their own only, got {value!r}")
    stated = raw.get("fields")
    if not isinstance(stated, Mapping) or not stated:
        raise _fault("fields", "an object with at least one field")
    fields = tuple(_field(str(name), value) for name, value in stated.items())
    implicit = [field.name for field in fields if field.opens is None]
    if len(implicit) > 1:
        raise _fault("fields", f"with one at most that has neither open nor open_pattern, got {implicit}")
    if not implicit and all(field.role is not Role.CONTENT for field in fields):
        fields = (*fields, Field("content", Role.CONTENT, None, None))
    anchor = _delimiter("it", raw, "start_anchor")
    if anchor is None:
        raise _fault("start_anchor", "there, or start_anchor_pattern")
    texts = tuple(form for text in _texts(raw) for form in {text, text.replace("\\", "")})
    return ResponseTemplate(fields, anchor, texts)


def _field(name: str, raw: Any) -> Field:
    scope = f"fields.{name}"
    if name not in _ROLES:
        raise _fault(scope, f"one of {', '.join(_ROLES)}: an answer has no place for others")
    if not isinstance(raw, Mapping):
        raise _fault(scope, f"an object, got {type(raw).__name__}")
    _check_keys(scope, raw, _FIELD_KEYS)
    opens, closes = _delimiter(scope, raw, "open"), _delimiter(scope, raw, "close")
    for key in _SWITCHES:
        if not isinstance(raw.get(key, False), bool):
            raise _fault(f"{scope}.{key}", f"true or false, got {raw[key]!r}")
    join = raw.get("join")
    if join is not None and not (isinstance(join, str) and raw.get("repeats", False)):
        raise _fault(f"{scope}.join", f"a text, beside a repeats of true, got {join!r}")
    groups = (opens.groups if opens else frozenset()) | (closes.groups if closes else frozenset())
    _check_transform(scope, raw, groups)
    field = Field(
        name,
        _ROLES[name],
        opens,
        closes,
        _content(scope, raw),
        raw.get("content_args", {}),
        join or "",
        raw.get("transform"),
        raw.get("transform_each", False),
    )
    if field.role is not Role.CALLS and (field.content != "text" or field.transform is not None):
        raise _fault(scope, "read as text without a transform: it is told while it is written")
    if field.role is Role.CALLS and join is not None:
        raise _fault(f"{scope}.join", "absent: calls are no text")
    return field


def _content(scope: str, raw: Mapping[str, Any]) -> str:
    content, arguments = raw.get("content", "text"), raw.get("content_args", {})
    if content not in CONTENTS:
        raise _fault(f"{scope}.content", f"one of {', '.join(CONTENTS)}, got {content!r}")
    try:
        check_content(content, arguments)
    except BadArguments as error:
        raise _fault(f"{scope}.content_args", str(error)) from None
    return str(content)


def _check_transform(scope: str, raw: Mapping[str, Any], groups: frozenset[str]) -> None:
    transform, each = raw.get("transform"), raw.get("transform_each", False)
    if transform is None:
        if each or groups:
            raise _fault(f"{scope}.transform", "there for transform_each and for a pattern's named groups")
        return
    for text in _texts(transform):
        found = PLACEHOLDER.fullmatch(text)
        if found is None and PLACEHOLDER.search(text):
            raise _fault(f"{scope}.transform", f"of whole placeholders or none in a text, got {text!r}")
        root = found[1].split(".")[0] if found else "content"
        if not each and root not in {"content", *groups}:
            raise _fault(f"{scope}.transform", f"about content or a pattern's named groups, got {text!r}")


def _delimiter(scope: str, raw: Mapping[str, Any], key: str) -> Delimiter | None:
    pattern_key = f"{key}_pattern"
    where = key if scope == "it" else f"{scope}.{key}"
    if key in raw and pattern_key in raw:
        raise _fault(where, f"without {pattern_key} beside it")
    if pattern_key in raw:
        return Delimiter(pattern=_compiled(f"{where}_pattern", raw[pattern_key]))
    if key not in raw:
        return None
    literals = [raw[key]] if isinstance(raw[key], str) else raw[key]
    if not isinstance(literals, list) or not literals or not all(isinstance(x, str) and x for x in literals):
        raise _fault(where, f"a text or a list of texts, none empty, got {raw[key]!r}")
    return Delimiter(tuple(dict.fromkeys(literals)))


def _compiled(where: str, pattern: Any) -> Any:
    try:
        import regex
    except ImportError:
        raise ConfigError(
            f"this checkpoint's response_template has a pattern at {where}, and reading by patterns needs the package "
            "`regex`: install noria[response-template], or name formats by --tool-call-parser and --reasoning-parser"
        ) from None
    if not isinstance(pattern, str):
        raise _fault(where, f"a text, got {pattern!r}")
    try:
        return regex.compile(pattern, regex.DOTALL)
    except regex.error as error:
        raise _fault(where, f"a regular expression, got {pattern!r}: {error}") from None


def _check_keys(scope: str, raw: Mapping[str, Any], known: frozenset[str]) -> None:
    unknown = sorted(set(map(str, raw)) - known)
    if unknown:
        raise _fault(scope, f"without {', '.join(unknown)}; known are {', '.join(sorted(known))}")


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


def _fault(where: str, wanted: str) -> ConfigError:
    return ConfigError(
        f"this checkpoint's response_template cannot be used: {where} must be {wanted} "
        "(--tool-call-parser and --reasoning-parser name formats instead of it)"
    )
