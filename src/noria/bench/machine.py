"""The machine that a figure belongs to."""

from __future__ import annotations

import platform
from typing import Any

from noria.config.hardware import machine_facts


def describe_machine() -> dict[str, Any]:
    return {
        **machine_facts(),
        "system": platform.platform(),
        "python": platform.python_version(),
    }
