"""What the texts of a response template's fields mean: values, and the calls that are made of them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from noria.parsers.pythonic import PythonicCalls
from noria.parsers.sink import CallSink
from noria.parsers.steps import Cursor, NotACall
from noria.parsers.template import Field

PLACEHOLDER = re.compile(r"\{(\w+(?:\.\w+)*)\}")
_QUOTED = r'"(?:\\.|[^"\\])*"'
_BARE_KEY = r"(?<=[{,])(?P<before>\s*)(?P<key>\w+)(?P<behind>\s*):"


class BadArguments(ValueError):
    """Settings that a way of reading does not take. str() says what they must be."""


class TemplateCall(NamedTuple):
    """arguments: JSON text, or what the model wrote as such."""

    name: str
    arguments: str


def calls_in(
    body: str, field: Field, groups: Mapping[str, str], tools: Mapping[str, Mapping[str, Any]]
) -> list[TemplateCall]:
    """groups: what the field's delimiters named. Raises NotACall for what is none, or calls what is no tool."""
    try:
        value = _transformed(read_content(field.content, body, field.arguments), field, groups)
        return [_call(one, tools) for one in (value if isinstance(value, list) else [value])]
    except (ValueError, TypeError, LookupError, RecursionError, OverflowError):
        raise NotACall from None


def _call(value: Any, tools: Mapping[str, Mapping[str, Any]]) -> TemplateCall:
    about = value.get("function", value)
    name, arguments = about["name"], about.get("arguments", {})
    schema = tools[name]
    if isinstance(arguments, Mapping):
        properties = schema.get("properties")
        known = properties if isinstance(properties, Mapping) else {}
        arguments = {key: _cast(one, schema_types(known.get(key))) for key, one in arguments.items()}
        return TemplateCall(name, json.dumps(arguments, ensure_ascii=False, allow_nan=False))
    if not isinstance(arguments, str):
        raise NotACall
    return TemplateCall(name, arguments)


def _transformed(value: Any, field: Field, groups: Mapping[str, str]) -> Any:
    if field.transform is None:
        return value
    if field.transforms_each:
        if not isinstance(value, list):
            raise NotACall
        return [_filled(field.transform, {**groups, **one}) for one in value]
    return _filled(field.transform, {**groups, "content": value})


def _filled(shape: Any, known: Mapping[str, Any]) -> Any:
    if isinstance(shape, Mapping):
        return {key: _filled(one, known) for key, one in shape.items()}
    if isinstance(shape, list):
        return [_filled(one, known) for one in shape]
    found = PLACEHOLDER.fullmatch(shape) if isinstance(shape, str) else None
    if found is None:
        return shape
    value: Any = known
    for key in found[1].split("."):
        if not isinstance(value, Mapping):
            raise NotACall
        value = value[key]
    return value


def schema_types(schema: Any) -> tuple[str, ...]:
    """The types that a value's schema names, in its order."""
    if not isinstance(schema, Mapping):
        return ()
    stated = schema.get("type")
    types = [one for one in (stated if isinstance(stated, list) else [stated]) if isinstance(one, str)]
    for key in ("anyOf", "oneOf"):
        for choice in schema.get(key) or ():
            types += schema_types(choice)
    return (*types, "null") if schema.get("nullable") else tuple(types)


def _cast(value: Any, types: tuple[str, ...]) -> Any:
    """A text as the first of the types that it can be; what cannot be any stays as it is."""
    if (
        isinstance(value, list) and types and "array" not in types
    ):  # the values of a key that came several times
        return [_cast(one, types) for one in value]
    if not isinstance(value, str):
        return value
    for kind in types:
        if kind in _CASTS:
            try:
                return _CASTS[kind](value)
            except (ValueError, OverflowError):
                continue
    return value


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        number = float(text)
        if not number.is_integer():
            raise
        return int(number)


def _number(text: str) -> int | float:
    number = float(text)
    if number - number != 0:
        raise ValueError(f"JSON has no {text}")
    return int(number) if number.is_integer() and "." not in text else number


def _one_of(values: Mapping[str, Any]) -> Callable[[str], Any]:
    def cast(text: str) -> Any:
        if text.strip().lower() not in values:
            raise ValueError(text)
        return values[text.strip().lower()]

    return cast


def _json_of_kind(kind: type) -> Callable[[str], Any]:
    def cast(text: str) -> Any:
        value = json.loads(text)
        if not isinstance(value, kind):
            raise ValueError(text)
        return value

    return cast


_CASTS: Mapping[str, Callable[[str], Any]] = {
    "integer": _integer,
    "number": _number,
    "boolean": _one_of({"true": True, "1": True, "false": False, "0": False}),
    "null": _one_of({"null": None, "none": None}),
    "object": _json_of_kind(dict),
    "array": _json_of_kind(list),
}


def read_content(name: str, text: str, arguments: Mapping[str, Any]) -> Any:
    """The value of a text, read in the way of that name. Raises ValueError for what it cannot be."""
    return CONTENTS[name](text, arguments)


def _text(text: str, arguments: Mapping[str, Any]) -> str:
    return text.strip() if arguments.get("strip", True) else text


def _json(text: str, arguments: Mapping[str, Any]) -> Any:
    pairs = arguments.get("string_delims", [])
    found = [f"{re.escape(begin)}(?P<text{i}>.*?){re.escape(end)}" for i, (begin, end) in enumerate(pairs)]
    found.append(_QUOTED)
    if arguments.get("unquoted_keys", False):
        found.append(_BARE_KEY)

    def plain(match: re.Match[str]) -> str:
        groups = {name: one for name, one in match.groupdict().items() if one is not None}
        if "key" in groups:
            return f'{groups["before"]}"{groups["key"]}"{groups["behind"]}:'
        inner = next((one for name, one in groups.items() if name.startswith("text")), None)
        return match[0] if inner is None else json.dumps(inner)

    try:
        return json.loads(re.sub("|".join(found), plain, text, flags=re.DOTALL))
    except ValueError:
        if arguments.get("allow_non_json", False):
            return _text(text, arguments)
        raise


def _tags(text: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    several: dict[str, list[Any]] = {}
    for match in re.finditer(arguments["tag_pattern"], text, flags=re.DOTALL):
        groups = match.groupdict()
        if groups["key"] is None:
            raise NotACall
        several.setdefault(groups["key"], []).append(_inner(groups.get("value") or "", arguments))
    merges = arguments.get("merge_duplicates", False)
    return {key: values if merges and len(values) > 1 else values[-1] for key, values in several.items()}


def _lines(text: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    separator = arguments.get("kv_sep", ":")
    values = {}
    for line in text.split(arguments.get("line_sep", "\n")):
        key, found, value = _text(line, arguments).partition(separator)
        if found:
            values[_text(key, arguments)] = _inner(_text(value, arguments), arguments)
    return values


def _inner(text: str, arguments: Mapping[str, Any]) -> Any:
    way = arguments.get("value_parser")
    return text if way is None else read_content(way.get("name", "text"), text, way.get("args", {}))


class _AnyCalls(CallSink):
    """Takes calls of all names."""

    def __init__(self) -> None:
        super().__init__({}, lambda index, name: "")
        self.calls: list[tuple[str, list[str]]] = []

    def begin(self, cursor: Cursor, name: str) -> Mapping[str, Any]:
        cursor.begin_call()
        self.calls.append((name, []))
        return {}

    def tell(self, text: str) -> None:
        self.calls[-1][1].append(text)


def _python_calls(text: str, arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
    cursor, sink = Cursor(), _AnyCalls()
    steps = PythonicCalls()(cursor, sink)
    next(steps)
    rest = text
    try:
        for position, character in enumerate(text):
            rest = text[position + 1 :]
            steps.send(character)
        raise NotACall
    except StopIteration:
        if rest.strip():
            raise NotACall from None
    return [{"name": name, "arguments": json.loads("".join(told))} for name, told in sink.calls]


def _truth(text: str, arguments: Mapping[str, Any]) -> bool:
    return _text(text, arguments).lower() in ("true", "1")


CONTENTS: Mapping[str, Callable[[str, Mapping[str, Any]], Any]] = {
    "text": _text,
    "int": lambda text, arguments: int(_text(text, arguments)),
    "float": lambda text, arguments: float(_text(text, arguments)),
    "bool": _truth,
    "json": _json,
    "xml-inline": _tags,
    "kv-lines": _lines,
    "python-call-list": _python_calls,
}
_TAKES: Mapping[str, Mapping[str, type]] = {
    "json": {"unquoted_keys": bool, "string_delims": list, "allow_non_json": bool},
    "xml-inline": {"tag_pattern": str, "value_parser": dict, "merge_duplicates": bool},
    "kv-lines": {"line_sep": str, "kv_sep": str, "value_parser": dict},
    "python-call-list": {},
}


def check_content(name: str, arguments: Any) -> None:
    """Raises BadArguments for settings that a way of reading does not take."""
    if not isinstance(arguments, Mapping):
        raise BadArguments(f"an object, got {arguments!r}")
    takes = {"strip": bool, **_TAKES.get(name, {})}
    for key, value in arguments.items():
        if key not in takes:
            raise BadArguments(f"without {key}: {name} takes {', '.join(takes)}")
        if not isinstance(value, takes[key]) and value is not None:
            raise BadArguments(f"with a {takes[key].__name__} as {key}, got {value!r}")
    if name == "xml-inline":
        _check_tag_pattern(arguments.get("tag_pattern"))
    if any(arguments.get(key) == "" for key in ("line_sep", "kv_sep")):
        raise BadArguments("without empty separators")
    for pair in arguments.get("string_delims") or ():
        if not (isinstance(pair, list) and len(pair) == 2 and all(isinstance(x, str) and x for x in pair)):
            raise BadArguments(f"with pairs of texts as string_delims, got {pair!r}")
    way = arguments.get("value_parser")
    if way is not None:
        if way.get("name", "text") not in CONTENTS:
            raise BadArguments(f"with a value_parser of {', '.join(CONTENTS)}, got {way!r}")
        check_content(way.get("name", "text"), way.get("args", {}))


def _check_tag_pattern(pattern: Any) -> None:
    try:
        groups = re.compile(pattern, re.DOTALL).groupindex
    except (re.error, TypeError) as error:
        raise BadArguments(f"with a regular expression as tag_pattern, got {pattern!r}: {error}") from None
    if "key" not in groups:
        raise BadArguments(f"with a tag_pattern that names a group key, got {pattern!r}")
