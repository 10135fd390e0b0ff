"""Whether a server is the engine that was simulated: if it is not, nothing that it shows is of the candidate."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from noria.config.engine import EngineConfig
from noria.config.errors import ConfigError
from noria.tuning.setting import has_fixed_steps

_OF_ENGINE = ("dtype", "quantization", "device", "num_threads")
_TIMED = ("step_cost",)  # anew at each start


class OtherEngine(ConfigError):
    """The servers differ from what steps were measured with: no candidate can be measured."""


def check_same(config: EngineConfig, settings: Mapping[str, Any]) -> None:
    """config: of the candidate. settings: of its server, as the fingerprint of an engine tells them.

    Raises OtherEngine with everything that differs.
    """
    name = settings.get("model_name", config.model_name)
    if name != config.model_name:
        raise OtherEngine(
            f"steps were measured with {config.model_name}, and the server has {name}: state the model of the step "
            "model with --model, or another step model"
        )
    others = [
        f"{name} is {found}, not {wanted}"
        for section, name, wanted in _wanted(config)
        if not _is_alike(found := _at(settings, section, name, wanted), wanted)
    ]
    if others:
        raise OtherEngine(
            f"the server is not what steps were measured with: {'; '.join(others)}. State these settings as they were "
            "measured, or measure steps with them (noria calibrate)"
        )


def _wanted(config: EngineConfig) -> Iterator[tuple[str, str, Any]]:
    """Section, name and value of what a candidate's server has to have."""
    told = json.loads(json.dumps(asdict(config), default=str))
    left_out = _TIMED if has_fixed_steps(config) else (*_TIMED, "max_num_batched_tokens")
    yield from (("", name, told[name]) for name in _OF_ENGINE)
    for section in ("cache", "scheduler"):
        yield from ((section, name, value) for name, value in told[section].items() if name not in left_out)


def _is_alike(one: Any, other: Any) -> bool:
    """Numbers may have been rounded on a command line."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-6)
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_is_alike(one[name], other[name]) for name in one)
    return bool(one == other)


def _at(settings: Mapping[str, Any], section: str, name: str, default: Any) -> Any:
    """default: where the server does not tell."""
    part = settings.get(section, {}) if section else settings
    return part.get(name, default)
