"""Several faults, told at once: a user mends them in one go instead of meeting them one by one."""

from __future__ import annotations

from collections.abc import Sequence

from noria.config.errors import ConfigError


def refuse(problems: Sequence[str]) -> None:
    """Raise a ConfigError that tells every problem; return when there is none."""
    if len(problems) == 1:
        raise ConfigError(problems[0])
    if problems:
        raise ConfigError(f"{len(problems)} settings cannot work:\n" + "\n".join(f"- {p}" for p in problems))
