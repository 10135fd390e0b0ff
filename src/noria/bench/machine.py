"""The machine that a figure belongs to."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

from noria.config.hardware import probe_cpu


def describe_machine() -> dict[str, Any]:
    hardware = probe_cpu()
    return {
        "processor": _processor(),
        "cpus": len(os.sched_getaffinity(0)),
        "memory_bytes": hardware.total_memory_bytes,
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())
