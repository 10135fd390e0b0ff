"""Noria: an LLM inference serving engine. `from noria import LLM, SamplingParams`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from noria.chats.tools import ChatTools
    from noria.config.errors import ConfigError, EngineError, ModelError, NoriaError, RequestError
    from noria.offline.llm import LLM
    from noria.offline.outputs import CompletionOutput, RequestOutput
    from noria.sampling.params import SamplingParams
    from noria.sampling.rule import Rule

__version__ = "0.1.0"

# Imported when first used: `import noria` is quick, and needs no torch.
_HOMES = {
    "LLM": "noria.offline.llm",
    "ChatTools": "noria.chats.tools",
    "CompletionOutput": "noria.offline.outputs",
    "RequestOutput": "noria.offline.outputs",
    "SamplingParams": "noria.sampling.params",
    "Rule": "noria.sampling.rule",
    "ConfigError": "noria.config.errors",
    "EngineError": "noria.config.errors",
    "ModelError": "noria.config.errors",
    "NoriaError": "noria.config.errors",
    "RequestError": "noria.config.errors",
}

__all__ = [
    "LLM",
    "ChatTools",
    "CompletionOutput",
    "ConfigError",
    "EngineError",
    "ModelError",
    "NoriaError",
    "RequestError",
    "RequestOutput",
    "Rule",
    "SamplingParams",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'noria' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
