"""Formats by name: those of Noria, those of installed packages, those of a file; and which one a template is of."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping

from noria.config.errors import ConfigError
from noria.config.plugins import TOOL_PARSERS_GROUP, Table
from noria.parsers.formats import (
    NAMES_OF_REASONING,
    NAMES_OF_TOOLS,
    REASONING_FORMATS,
    TOOL_FORMATS,
    ReasoningFormat,
    ToolFormat,
)
from noria.parsers.template import ResponseTemplate, Role

AUTO = "auto"
NONE = "none"
RESPONSE_TEMPLATE = "response_template"
TOOL_PARSERS = Table(TOOL_PARSERS_GROUP, {})  # what packages add: name of a format -> a ToolFormat


def answer_template(
    tool_parser: str, reasoning_parser: str, source: str | None, plugin: str | None = None
) -> ResponseTemplate | None:
    """The checkpoint's own account of its answers, which is read by as a whole or not at all: None where there is
    none, and where a format is named or brought for calls or for reasoning.

    source: its JSON text. Raises ConfigError for one that cannot be used, and where it is named and cannot be.
    """
    names = {"tool_call_parser": tool_parser, "reasoning_parser": reasoning_parser}
    asked = next((option for option, name in names.items() if name == RESPONSE_TEMPLATE), None)
    other = next((name for name in names.values() if name not in (AUTO, RESPONSE_TEMPLATE)), plugin)
    if asked is None and (source is None or other is not None):
        return None
    if source is None:
        raise ConfigError(
            f"{asked} is {RESPONSE_TEMPLATE}, but this checkpoint's tokenizer_config.json has none"
        )
    if other is not None:
        raise ConfigError(
            f"{asked} is {RESPONSE_TEMPLATE}, which reads whole answers, and cannot stand beside {other!r}: leave the "
            "other parser at auto, and tool_parser_plugin unset"
        )
    from noria.parsers.template_load import load_template  # most checkpoints have none

    template = load_template(json.loads(source))
    roles = {"tool_call_parser": Role.CALLS, "reasoning_parser": Role.REASONING}
    for option, role in roles.items():
        if names[option] == RESPONSE_TEMPLATE and not template.has(role):
            raise ConfigError(
                f"{option} is {RESPONSE_TEMPLATE}, but this checkpoint's has no field {role.value}"
            )
    return template


def tool_format(name: str, template: str | None, plugin: str | None = None) -> ToolFormat | None:
    """The format of that name; AUTO: the one that the chat template asks the model for; NONE: none.

    plugin: path of a Python file whose TOOL_FORMATS maps names to formats; they count before all others.
    Raises ConfigError for a name that nobody knows, and a file that cannot be run, PluginError for a package that
    cannot be used.
    """
    brought = _of_file(plugin) if plugin is not None else {}
    if name == NONE:
        return None
    if name == AUTO:
        return next(iter(brought.values()), None) or _tools_of_template(template)
    if name in brought:
        return brought[name]
    if name in NAMES_OF_TOOLS:
        return TOOL_FORMATS[NAMES_OF_TOOLS[name]]
    entry = TOOL_PARSERS.find(name)
    if entry is None:
        known = sorted({*brought, *NAMES_OF_TOOLS, *TOOL_PARSERS.names()})
        raise ConfigError(
            f"tool_call_parser is {name!r}; known are {AUTO}, {NONE}, {RESPONSE_TEMPLATE}, {', '.join(known)} (a "
            f"package or --tool-parser-plugin may bring more)"
        )
    return _checked(entry.load(), entry.where)


def reasoning_format(name: str, template: str | None) -> ReasoningFormat | None:
    """As tool_format, for reasoning. Raises ConfigError for a name that nobody knows."""
    if name == NONE:
        return None
    if name == AUTO:
        formats = REASONING_FORMATS.values()
        return next((form for form in formats if _fits(template, form.in_template)), None)
    if name not in NAMES_OF_REASONING:
        raise ConfigError(
            f"reasoning_parser is {name!r}; known are {AUTO}, {NONE}, {RESPONSE_TEMPLATE}, "
            f"{', '.join(sorted(NAMES_OF_REASONING))}"
        )
    return REASONING_FORMATS[NAMES_OF_REASONING[name]]


def _tools_of_template(template: str | None) -> ToolFormat | None:
    """Where a template knows of no tools at all, they are shown to the model in Hermes's way."""
    if template is None or "tools" not in template:
        return TOOL_FORMATS["hermes"]
    return next((form for form in TOOL_FORMATS.values() if _fits(template, form.in_template)), None)


def _fits(template: str | None, texts: tuple[str, ...]) -> bool:
    return template is not None and bool(texts) and all(text in template for text in texts)


def _of_file(path: str) -> Mapping[str, ToolFormat]:
    spec = importlib.util.spec_from_file_location("noria_tool_parser_plugin", path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"tool_parser_plugin must be a Python file, got {path!r}")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever the file's code runs into
        raise ConfigError(f"tool_parser_plugin {path}: {type(error).__name__}: {error}") from error
    formats = getattr(module, "TOOL_FORMATS", None)
    if not isinstance(formats, Mapping) or not formats:
        raise ConfigError(f"tool_parser_plugin {path} must have TOOL_FORMATS, a map from names to formats")
    return {name: _checked(form, f"{path}: {name}") for name, form in formats.items()}


def _checked(value: object, what: str) -> ToolFormat:
    if not isinstance(value, ToolFormat):
        raise ConfigError(f"{what} must be a noria.parsers.formats.ToolFormat, got {type(value).__name__}")
    return value
