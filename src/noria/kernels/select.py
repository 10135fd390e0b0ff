"""Which backend runs the ops. Backends are imported here only, and only when one is asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from noria.config.errors import ConfigError
from noria.kernels.native.support import machine_obstacle, model_obstacle
from noria.kernels.ops import Backend, BackendOptions

if TYPE_CHECKING:
    from noria.kernels.native.levels import ChosenLevel

BACKENDS = ("native", "torch")  # in the order in which auto tries them


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a backend has to serve.

    dtype: float32 | bfloat16 | float16. block_size: tokens. quantization: none | w8 | w4, done while loading.
    kv_dtype: auto, a dtype or int8.
    """

    dtype: str
    head_dim: int
    block_size: int
    quantization: str = "none"
    kv_dtype: str = "auto"


@dataclass(frozen=True, slots=True)
class ChosenBackend:
    """reason: why this one. is_fallback: a better one was wanted and cannot be had."""

    name: str
    reason: str
    is_fallback: bool = False


def choose_backend(asked: str, wanted: Wanted) -> ChosenBackend:
    """asked: auto or a backend's name. ConfigError where it, or for auto none, can serve what is wanted here."""
    if asked != "auto":
        obstacle = _obstacle(asked, wanted)
        if obstacle is not None:
            raise ConfigError(f"the {asked} backend cannot be used: {obstacle}")
        return ChosenBackend(asked, "asked for")
    best, *others = BACKENDS
    reasons = {best: _obstacle(best, wanted)}
    if reasons[best] is None:
        return ChosenBackend(best, "the first that serves the model here")
    for name in others:
        reasons[name] = _obstacle(name, wanted)
        if reasons[name] is None:
            return ChosenBackend(
                name, f"the {best} backend cannot be used: {reasons[best]}", is_fallback=True
            )
    told = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
    raise ConfigError(f"no backend can run this model here. {told}")


def load_backend(name: str) -> Callable[[BackendOptions], Backend]:
    """Import a backend of BACKENDS; what is returned makes one, with an empty KV cache.

    Two steps, so that memory can be looked at once the backend's libraries are in it.
    """
    if name == "native":
        from noria.kernels.native.backend import NativeBackend

        return NativeBackend
    from noria.kernels.torch_ops.backend import TorchBackend

    return TorchBackend


def settle_level(backend: str, asked: str) -> ChosenLevel | None:
    """Of the loaded native backend, the instruction set level that it computes at from now on; None for others.

    asked: auto or a level's name. ConfigError where it cannot be had.
    """
    if backend == "native":
        from noria.kernels.native.levels import use_level

        return use_level(asked)
    if asked != "auto":
        raise ConfigError(
            f"isa is {asked!r}: only the native backend has levels, and the model runs on {backend}"
        )
    return None


def _obstacle(name: str, wanted: Wanted) -> str | None:
    """Why a backend cannot serve what is wanted on this machine, or None."""
    if name == "native":
        return machine_obstacle() or model_obstacle(wanted.dtype, wanted.head_dim, wanted.block_size)
    if find_spec("torch") is None:
        return "torch is not installed (pip install torch)"
    if wanted.quantization != "none":
        return f"it cannot round weights to {wanted.quantization} (quantization)"
    if wanted.kv_dtype == "int8":
        return "it holds no KV cache in int8 (kv_cache_dtype); float16 takes twice as much"
    return None
