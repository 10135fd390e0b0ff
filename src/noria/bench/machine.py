"""The machine that a figure belongs to."""

from __future__ import annotations

import os
import platform
from typing import Any

from noria.config.hardware import probe_cpu, processor_name


def describe_machine() -> dict[str, Any]:
    hardware = probe_cpu()
    return {
        "processor": processor_name(),
        "cpus": len(os.sched_getaffinity(0)),
        "memory_bytes": hardware.total_memory_bytes,
        "system": platform.platform(),
        "python": platform.python_version(),
    }
