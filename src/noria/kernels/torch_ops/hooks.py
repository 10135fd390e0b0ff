"""What goes into the submodules of a torch module while it runs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import torch


def run_hooked(
    module: torch.nn.Module, token_ids: Sequence[int], names: Collection[str]
) -> tuple[dict[str, list[np.ndarray]], np.ndarray]:
    """The first input of every call of the named submodules, [T, width] each, and the logits [T, V], all float32.

    The module takes ids [1, T] and returns logits [1, T, V], or an object that has them as `logits`.
    """
    inputs: dict[str, list[np.ndarray]] = {}
    hooks = [
        part.register_forward_pre_hook(_noting(inputs.setdefault(name, [])))
        for name, part in module.named_modules()
        if name in names
    ]
    try:
        with torch.inference_mode():
            result = module(torch.tensor([list(token_ids)]))
    finally:
        for hook in hooks:
            hook.remove()
    return inputs, _rows(getattr(result, "logits", result))


def _noting(calls: list[np.ndarray]) -> Any:
    def note(module: torch.nn.Module, arguments: tuple[torch.Tensor, ...]) -> None:
        calls.append(_rows(arguments[0]))

    return note


def _rows(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().float().reshape(-1, tensor.shape[-1]).cpu().numpy().copy()
