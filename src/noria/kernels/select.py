"""Which backend runs the ops. Backends are imported here only, and only when one is asked for."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

from noria.config.errors import ConfigError
from noria.kernels.ops import Backend, BackendOptions

_DEVICES = ("cpu",)


def load_backend(device: str) -> Callable[[BackendOptions], Backend]:
    """Import the backend for a device; what is returned makes one, with an empty KV cache.

    Two steps, so that memory can be looked at once the backend's libraries are in it. ConfigError where none
    can serve the device on this machine.
    """
    if device not in _DEVICES:
        raise ConfigError(f"device {device!r} is not supported; supported: {', '.join(_DEVICES)}")
    if find_spec("torch") is None:
        raise ConfigError("no backend can run here: torch is not installed; pip install noria[torch]")
    from noria.kernels.torch_ops.backend import TorchBackend

    return TorchBackend
