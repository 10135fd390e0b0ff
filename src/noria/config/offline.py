"""What a user may ask of a model in their own process."""

from __future__ import annotations

from dataclasses import dataclass, field

from noria.config.asked import EngineOptions
from noria.config.tools import ToolOptions


@dataclass(frozen=True, slots=True)
class OfflineOptions:
    """Of `noria.LLM`: the engine's, and how chats are read."""

    engine: EngineOptions = field(default_factory=EngineOptions)
    tools: ToolOptions = field(default_factory=ToolOptions)
