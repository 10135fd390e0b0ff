"""The machine that figures belong to."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

_TELLING = (
    "avx2",
    "avx512f",
    "avx512_vnni",
    "avx512_bf16",
    "avx512_fp16",
    "avx_vnni",
    "amx_int8",
    "amx_bf16",
)
# Processes that wanted a CPU in the last minute; above it, somebody else is at work.
BUSY_LOAD = 0.5


def describe() -> dict[str, Any]:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    cpu = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    present = set(cpu.get("flags", "").split())
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    return {
        "processor": cpu.get("model name", platform.machine()),
        "instructions": [flag for flag in _TELLING if flag in present],
        "cpus": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * page_bytes,
        "system": platform.platform(),
        "python": platform.python_version(),
        "load_at_start": os.getloadavg()[0],
    }
