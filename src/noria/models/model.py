"""What a built model offers to the runner, on any backend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from noria.config.model import ModelConfig
from noria.kernels.batch import Batch, Outputs
from noria.kernels.ops import Sampler
from noria.models.pooling_heads import PoolingHeads


class Model(Protocol):
    """A model with its weights and its paged KV cache."""

    config: ModelConfig
    pooling_heads: PoolingHeads

    @property
    def sampler(self) -> Sampler: ...

    @property
    def progress(self) -> int:
        """Moves as work does, if need be within a forward; may be read from any thread."""
        ...

    def forward(self, batch: Batch) -> Outputs:
        """Write the batch's KV; return what is wanted of its rows."""
        ...

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy whole blocks of the KV cache, all layers: (source, destination) pairs."""
        ...
