"""The backends that this machine has, for tests that hold for each."""

from __future__ import annotations

from importlib.util import find_spec

from noria.kernels.native.support import machine_obstacle
from noria.models.build import BuiltModel

BACKENDS = [
    *(["native"] if machine_obstacle() is None else []),
    *(["torch"] if find_spec("torch") is not None else []),
]


def fill_cache(model: BuiltModel, value: float) -> None:
    """Every slot of its KV cache, as earlier owners may have left it."""
    cache = model._backend._cache
    if hasattr(cache, "fill"):
        cache.fill(value)
    else:
        cache._kv[:, :, :, : cache.zero_slot] = value
