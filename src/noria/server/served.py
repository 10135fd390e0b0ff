"""What the server says and assumes of the model behind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from noria.chats.formats import UNKNOWN_FORMATS, Formats
from noria.config.abilities import Abilities
from noria.config.errors import ConfigError, RequestError
from noria.config.tools import ToolOptions
from noria.sampling.defaults import RECOMMENDABLE, params_over_defaults
from noria.server.errors import model_not_found
from noria.tokenize.tokenizer import Tokenizer


@dataclass
class ServedModel:
    """One model under one or more names. Nothing of it changes but what `follow` says.

    names: the first is the one that answers bear where a request names none.
    max_model_len: prompt and output together, in tokens. max_logprobs: most alternatives a token; -1: all.
    created: when it was loaded, in seconds since 1970.
    generation_defaults: by request field (temperature, top_p, top_k, min_p, repetition_penalty): what holds
        where a request states nothing; from the model's generation_config.json.
    cache_labels: settings of the KV cache, for `cache_config_info`.
    formats: how it writes tool calls and reasoning.
    seed: draws the seeds of requests that state none; None draws them from the system.
    abilities: what it is served for.
    fingerprint: tells what identifies the engine that runs now: {"model": ..., "settings": ...}.
    """

    names: tuple[str, ...]
    tokenizer: Tokenizer
    max_model_len: int
    vocab_size: int
    max_logprobs: int = 20
    created: int = 0
    generation_defaults: Mapping[str, Any] = field(default_factory=dict)
    cache_labels: Mapping[str, str] = field(default_factory=dict)
    formats: Formats = UNKNOWN_FORMATS
    seed: int | None = None
    abilities: Abilities = field(default_factory=Abilities)
    fingerprint: Callable[[], dict[str, Any]] = dict

    @property
    def name(self) -> str:
        return self.names[0]

    def resolve(self, name: str | None) -> str:
        """The name to answer with. Raises ApiError (404) for one that is not served."""
        if name is None:
            return self.name
        if name not in self.names:
            raise model_not_found(name, self.names)
        return name

    def follow(self, max_model_len: int, cache_labels: Mapping[str, str]) -> None:
        """Another engine is in the place of the one before it, with other sizes."""
        self.max_model_len = max_model_len
        self.cache_labels = cache_labels

    def with_defaults(self, stated: Mapping[str, Any]) -> ServedModel:
        """The same with these generation defaults over its own. Raises ConfigError for what is none."""
        unknown = sorted(stated.keys() - set(RECOMMENDABLE))
        if unknown:
            raise ConfigError(
                f"override_generation_config holds {', '.join(map(repr, unknown))}; it may hold "
                f"{', '.join(RECOMMENDABLE)}"
            )
        defaults = {**self.generation_defaults, **stated}
        try:
            params_over_defaults({}, defaults)
        except RequestError as error:
            raise ConfigError(f"override_generation_config: {error}") from None
        return replace(self, generation_defaults=defaults)

    def with_formats(self, options: ToolOptions) -> ServedModel:
        """The same with the formats that these options name. Raises ConfigError for one that nobody knows."""
        return replace(self, formats=Formats.of(options, self.tokenizer))

    def card(self, name: str) -> dict[str, Any]:
        """An entry of /v1/models."""
        return {
            "id": name,
            "object": "model",
            "created": self.created,
            "owned_by": "noria",
            "root": self.name,
            "parent": None,
            "max_model_len": self.max_model_len,
            "tasks": [task.value for task in self.abilities.tasks],
        }
