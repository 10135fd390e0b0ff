"""Instruction set levels of the native kernels: the best that proves itself here, or the one that is asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from noria.config.errors import ConfigError
from noria.kernels.native import _native

_EMULATED = (
    "emulated_"  # slow stand-ins for levels that a machine lacks; for tests, never chosen by themselves
)


@dataclass(frozen=True, slots=True)
class ChosenLevel:
    """reason: why this one. is_fallback: a better one is there and cannot be trusted."""

    name: str
    reason: str
    is_fallback: bool = False


def use_level(asked: str) -> ChosenLevel:
    """Compute at this level from now on, in the whole process. asked: auto or a level's name.

    ConfigError for a level that is not to be had here.
    """
    chosen = choose_level(asked, _native.levels(), _native.is_proven)
    _native.use_isa(chosen.name)
    return chosen


def choose_level(asked: str, levels: Sequence[str], is_proven: Callable[[str], bool]) -> ChosenLevel:
    """levels: what the machine runs, ascending, emulated ones among them.

    is_proven: whether one multiplies right here. It is not asked of the lowest, which is the measure, nor of a level
    that the user insists on.
    """
    real = [name for name in levels if not name.startswith(_EMULATED)]
    if asked != "auto":
        if asked not in levels:
            raise ConfigError(
                f"isa is {asked!r}, which is not to be had here: this machine runs {', '.join(real)}"
            )
        return ChosenLevel(asked, "asked for")
    lowest, *higher = real
    failed = []
    for name in reversed(higher):
        if is_proven(name):
            break
        failed.append(name)
    else:
        name = lowest
    if failed:
        told = " and ".join(failed)
        return ChosenLevel(name, f"{told} gave wrong results when tried on this CPU", is_fallback=True)
    return ChosenLevel(name, "the best that this CPU runs")
