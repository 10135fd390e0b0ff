"""Settings that a subcommand takes and has no use for this time."""

from __future__ import annotations

import sys
from collections.abc import Container
from typing import Any

from noria.config.option import settings_of
from noria.config.parse import value_of


def tell_unused(options: Any, why: str, used: Container[str] = ()) -> None:
    """Say on standard error which settings of a group are without effect: those that are not at their defaults.

    They are no fault: they may come from an environment that is meant for a server. used: names of those that have one.
    """
    stated = [
        setting.flag
        for setting in settings_of(type(options))
        if setting.name not in used and value_of(options, setting) != setting.default
    ]
    if stated:
        print(f"note: without effect: {', '.join(stated)}; {why}", file=sys.stderr)
