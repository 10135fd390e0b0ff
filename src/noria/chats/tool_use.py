"""Which tools a chat has and whether they must be called, whatever protocol says so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from noria.chats.custom import CustomInput


class Choice(Enum):
    NONE = "none"  # the tools are not even shown
    AUTO = "auto"
    REQUIRED = "required"  # the answer is calls and nothing else
    NAMED = "named"  # the answer is one call, of the tool that is named


@dataclass(frozen=True, slots=True)
class Tool:
    """parameters: JSON schema of its arguments. definition: as chat templates take it.

    is_strict: a call of it follows the schema even where the model need not call. custom: what it takes instead of
    arguments, which parameters say in the words of a schema; None for a function.
    """

    name: str
    parameters: Mapping[str, Any]
    definition: Mapping[str, Any]
    is_strict: bool = False
    custom: CustomInput | None = None


@dataclass(frozen=True, slots=True)
class ToolUse:
    """named: the tool that must be called, under Choice.NAMED. is_parallel: an answer may hold several calls."""

    tools: tuple[Tool, ...] = ()
    choice: Choice = Choice.NONE
    named: str | None = None
    is_parallel: bool = True

    @property
    def shown(self) -> tuple[Tool, ...]:
        """What the model is told of."""
        return () if self.choice is Choice.NONE else self.tools

    @property
    def is_forced(self) -> bool:
        return self.choice in (Choice.REQUIRED, Choice.NAMED)

    @property
    def schemas(self) -> dict[str, Mapping[str, Any]]:
        """By name, of the arguments."""
        return {tool.name: tool.parameters for tool in self.tools}

    @property
    def customs(self) -> dict[str, CustomInput]:
        """By name, what custom tools take."""
        return {tool.name: tool.custom for tool in self.tools if tool.custom is not None}

    @property
    def strict_schemas(self) -> dict[str, Mapping[str, Any] | None]:
        """By name, of the arguments; None for a tool that takes whatever the model writes."""
        return {tool.name: tool.parameters if tool.is_strict or tool.custom else None for tool in self.tools}


NO_TOOLS = ToolUse()
