"""Memory that is used again at every step: faulting fresh memory in costs as much as computing what goes into it."""

from __future__ import annotations

import math

import torch


class Scratch:
    """Tensors by use. What is taken for a use is valid until the next taking for the same use."""

    def __init__(self, device: str) -> None:
        self.device = device
        self._rooms: dict[str, torch.Tensor] = {}

    def take(self, use: str, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Contiguous, of any content. One use has one dtype."""
        size, room = math.prod(shape), self._rooms.get(use)
        if room is None or len(room) < size:
            room = self._rooms[use] = torch.empty(size, dtype=dtype, device=self.device)
        return room[:size].view(shape)
