"""The tools of a request, and its choice among them, in the words of each protocol."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from noria.chats.custom import input_of, parameters_of
from noria.chats.tool_use import NO_TOOLS, Choice, Tool, ToolUse
from noria.config.errors import RequestError

logger = logging.getLogger("noria.server")

MAX_TOOLS = 1024
_FUNCTION, _CUSTOM = "function", "custom"  # types of tools
_MAX_NAME = 256  # characters
_CHOICES = {choice.value: choice for choice in (Choice.NONE, Choice.AUTO, Choice.REQUIRED)}
_MESSAGES_CHOICES = {"none": Choice.NONE, "auto": Choice.AUTO, "any": Choice.REQUIRED, "tool": Choice.NAMED}


@dataclass(frozen=True, slots=True)
class ChatTools:
    """Tools, and the choice among them, in the words of Chat Completions.

    tools: of {"type": "function", "function": {"name", "description", "parameters", "strict"}}, and of {"type":
    "custom", "custom": {"name", "description", "format"}}, whose input is a text. choice: auto, none, required, or
    {"type": "function", "function": {"name"}}, or the same of a custom tool. is_parallel: an answer may make several
    calls.
    """

    tools: Sequence[Mapping[str, Any]]
    choice: str | Mapping[str, Any] | None = None
    is_parallel: bool = True


ToolsType = Sequence[Mapping[str, Any]] | ChatTools  # several, of which the model is free to call any


def tools_of(tools: ToolsType) -> ToolUse:
    """Raises RequestError for tools that are none, and a choice that cannot be obeyed."""
    asked = tools if isinstance(tools, ChatTools) else ChatTools(tools)
    if isinstance(asked.tools, (str, bytes, Mapping)) or not isinstance(asked.tools, Sequence):
        raise _fault(f"tools must be a list, got {type(asked.tools).__name__}")
    return chat_tools(asked.tools, asked.choice, asked.is_parallel)


def chat_tools(tools: Any, choice: Any, parallel: bool | None) -> ToolUse:
    """Of Chat Completions: {"type": "function", "function": {"name", "description", "parameters", "strict"}}, or
    {"type": "custom", "custom": {"name", "description", "format"}}.
    """
    found = [_nested(tool, f"tools[{i}]") for i, tool in enumerate(_listed(tools))]
    return _chosen(found, choice, parallel, _named_within)


def response_tools(tools: Any, choice: Any, parallel: bool | None) -> ToolUse:
    """Of Responses: {"type": "function", "name", "description", "parameters", "strict"}, or
    {"type": "custom", "name", "description", "format"}.
    """
    found = [_flat(tool, f"tools[{i}]") for i, tool in enumerate(_listed(tools))]
    choice = None if choice == "auto" else choice  # the protocol's own default, with tools or without
    return _chosen([tool for tool in found if tool is not None], choice, parallel, lambda stated: stated)


def message_tools(tools: Any, choice: Any) -> ToolUse:
    """Of Messages: {"name", "description", "input_schema", "strict"}."""
    found = [_of_messages(tool, f"tools[{i}]") for i, tool in enumerate(_listed(tools))]
    choice = {} if choice is None else choice
    stated = choice.get("type", "auto")
    kind = _MESSAGES_CHOICES.get(stated) if isinstance(stated, str) else None
    if kind is None:
        raise RequestError(
            f"tool_choice.type must be one of {', '.join(_MESSAGES_CHOICES)}", param="tool_choice"
        )
    is_parallel = choice.get("disable_parallel_tool_use") is not True
    named = _name(choice, "tool_choice") if kind is Choice.NAMED else None
    return _checked(ToolUse(_distinct(found), kind, named, is_parallel), is_stated=kind is not Choice.AUTO)


def _listed(tools: Any) -> list[Any]:
    listed = tools or []
    if len(listed) > MAX_TOOLS:
        raise _fault(f"tools must hold at most {MAX_TOOLS}, got {len(listed)}")
    return list(listed)


def _nested(tool: Any, where: str) -> Tool:
    kind = _known_kind(tool, where)
    if not isinstance(tool.get(kind), dict):
        raise _fault(f"{where}.{kind} must be an object")
    return _of_kind(kind, tool[kind], f"{where}.{kind}")


def _flat(tool: Any, where: str) -> Tool | None:
    kind = _kind(tool, where)
    if kind == "web_search" and "external_web_access" in tool:
        logger.info("a tool of the type web_search is left out: nothing here can search")
        return None
    return _of_kind(_known_kind(tool, where), tool, where)


def _known_kind(tool: Any, where: str) -> str:
    kind = _kind(tool, where)
    if kind not in (_FUNCTION, _CUSTOM):
        raise _fault(f"{where} is of the type {kind!r:.80}; this server supports functions and custom tools")
    return kind


def _of_kind(kind: str, stated: Mapping[str, Any], where: str) -> Tool:
    if kind == _FUNCTION:
        return _tool(stated, "parameters", where)
    asked = input_of(stated.get("format"), f"{where}.format")
    told = {name: stated.get(name) for name in ("name", "description")}
    made = _tool({**told, "parameters": parameters_of(asked)}, "parameters", where)
    return replace(made, custom=asked, is_strict=asked.syntax == "regex")


def _of_messages(tool: Any, where: str) -> Tool:
    if not isinstance(tool, dict):
        raise _fault(f"{where} must be an object")
    if tool.get("type") not in (None, "custom"):
        raise _fault(
            f"{where} is of the type {tool['type']!r:.80}; this server supports tools of its clients"
        )
    return _tool(tool, "input_schema", where)


def _kind(tool: Any, where: str) -> str:
    if not isinstance(tool, dict) or not isinstance(tool.get("type"), str):
        raise _fault(f"{where} must be an object with a type")
    return str(tool["type"])


def _tool(stated: Mapping[str, Any], schema: str, where: str) -> Tool:
    name = _name(stated, where)
    parameters = stated.get(schema)
    if not isinstance(parameters, (dict, type(None))):
        raise _fault(f"{where}.{schema} must be an object, a JSON schema")
    if not isinstance(stated.get("description"), (str, type(None))):
        raise _fault(f"{where}.description must be a string")
    if not isinstance(stated.get("strict"), (bool, type(None))):
        raise _fault(f"{where}.strict must be true or false")
    parameters = parameters or {"type": "object", "properties": {}}
    function = {"name": name, "description": stated.get("description") or "", "parameters": parameters}
    return Tool(name, parameters, {"type": "function", "function": function}, stated.get("strict") is True)


def _name(stated: Mapping[str, Any], where: str) -> str:
    name = stated.get("name")
    if not isinstance(name, str) or not 0 < len(name) <= _MAX_NAME:
        raise RequestError(
            f"{where}.name must have 1 to {_MAX_NAME} characters", param=where.partition("[")[0]
        )
    return name


def _distinct(tools: Iterable[Tool]) -> tuple[Tool, ...]:
    found: dict[str, Tool] = {}
    for tool in tools:
        if tool.name in found:
            raise _fault(f"tools holds two that are called {tool.name!r:.100}")
        found[tool.name] = tool
    return tuple(found.values())


def _chosen(tools: list[Tool], choice: Any, parallel: bool | None, function_of: Any) -> ToolUse:
    use = ToolUse(_distinct(tools), Choice.AUTO, None, parallel is not False)
    if choice is None:
        return _checked(use, is_stated=False)
    if isinstance(choice, str):
        if choice not in _CHOICES:
            raise RequestError(
                f"tool_choice must be one of {', '.join(_CHOICES)}, or name a function", param="tool_choice"
            )
        return _checked(replace(use, choice=_CHOICES[choice]), is_stated=True)
    if not isinstance(choice, Mapping):
        raise RequestError("tool_choice must be a string or an object", param="tool_choice")
    if choice.get("type") == "allowed_tools":
        return _checked(_allowed(use, choice, function_of), is_stated=True)
    if choice.get("type") not in (_FUNCTION, _CUSTOM):
        raise RequestError(
            "tool_choice must be of the type function, custom or allowed_tools", param="tool_choice"
        )
    named = _name(function_of(choice), "tool_choice")
    use = _checked(replace(use, choice=Choice.NAMED, named=named), is_stated=True)
    _check_kind(use, named, choice)
    return use


def _allowed(use: ToolUse, choice: Mapping[str, Any], function_of: Any) -> ToolUse:
    """{"mode": "auto" | "required", "tools": [...]}, of which Chat Completions make an object of its own."""
    stated = choice.get("allowed_tools", choice)
    tools = stated.get("tools") if isinstance(stated, Mapping) else None
    mode = _CHOICES.get(str(stated.get("mode"))) if isinstance(stated, Mapping) else None
    if not isinstance(tools, list) or mode not in (Choice.AUTO, Choice.REQUIRED):
        raise RequestError("tool_choice must have a mode, auto or required, and tools", param="tool_choice")
    names = [_name(function_of(tool) if isinstance(tool, dict) else {}, "tool_choice") for tool in tools]
    unknown = sorted(set(names) - use.schemas.keys())
    if unknown:
        raise RequestError(
            f"tool_choice allows {unknown[0]!r:.100}, which is not in tools", param="tool_choice"
        )
    for name, tool in zip(names, tools, strict=True):
        _check_kind(use, name, tool)
    return replace(use, tools=tuple(tool for tool in use.tools if tool.name in names), choice=mode)


def _check_kind(use: ToolUse, name: str, stated: Mapping[str, Any]) -> None:
    kind = _CUSTOM if name in use.customs else _FUNCTION
    if stated.get("type") not in (None, kind):
        raise RequestError(
            f"tool_choice calls {name!r:.100} a tool of the type {stated['type']!r:.80}; its type is {kind}",
            param="tool_choice",
        )


def _named_within(stated: Mapping[str, Any]) -> Mapping[str, Any]:
    member = _CUSTOM if stated.get("type") == _CUSTOM else _FUNCTION
    inner = stated.get(member)
    if not isinstance(inner, Mapping):
        raise RequestError(f"tool_choice.{member} must be an object with a name", param="tool_choice")
    return inner


def _checked(use: ToolUse, is_stated: bool) -> ToolUse:
    """is_stated: the request says something of its choice."""
    if not use.tools:
        if is_stated and use.choice is not Choice.NONE:
            raise RequestError("When using `tool_choice`, `tools` must be set.", param="tool_choice")
        return NO_TOOLS
    if use.named is not None and use.named not in use.schemas:
        raise RequestError(
            f"tool_choice names {use.named!r:.100}, which is not in tools", param="tool_choice"
        )
    return use


def _fault(message: str) -> RequestError:
    return RequestError(message, param="tools")
