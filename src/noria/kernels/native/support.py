"""Whether the native backend can serve a model on this machine, found out without loading it."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

DTYPES = ("float32", "bfloat16", "float16")
_DIM_UNIT = 8  # of head_dim, and tokens of a block: what one vector holds
_LEVEL_FLAGS = frozenset({"avx2", "fma", "f16c"})


def machine_obstacle() -> str | None:
    """Why it cannot run here at all, or None."""
    if find_spec("noria.kernels.native._native") is None:
        return "its library was not built when noria was installed"
    missing = sorted(_LEVEL_FLAGS - cpu_flags())
    return f"this CPU lacks {', '.join(missing)}" if missing else None


def model_obstacle(dtype: str, head_dim: int, block_size: int) -> str | None:
    """Why it cannot serve such a model, or None."""
    if dtype not in DTYPES:
        return f"it does not store {dtype}, only {', '.join(DTYPES)}"
    if head_dim % _DIM_UNIT:
        return f"the model's head_dim is {head_dim}, no multiple of {_DIM_UNIT}"
    if block_size % _DIM_UNIT:
        return f"block_size is {block_size}, no multiple of {_DIM_UNIT}"
    return None


def cpu_flags(cpuinfo: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """What the kernel says the CPU can do; nothing where it says nothing."""
    try:
        text = cpuinfo.read_text(encoding="ascii", errors="replace")
    except OSError:
        return frozenset()
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "flags":
            return frozenset(value.split())
    return frozenset()
