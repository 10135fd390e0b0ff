"""From a checked checkpoint to a model that runs: pack its tensors one by one, compile the forward."""

from __future__ import annotations

from collections.abc import Sequence

from noria.config.model import ModelConfig
from noria.kernels.batch import Batch, Outputs
from noria.kernels.ops import Backend, CacheShape, Program, Sampler
from noria.models.pooling_heads import PoolingHeads
from noria.models.registry import architecture, blamed
from noria.models.rope import rope_table
from noria.models.stored import StoredModel


class BuiltModel:
    """A model.Model: an architecture's forward, compiled by a backend that holds weights and KV."""

    def __init__(self, config: ModelConfig, backend: Backend, program: Program, heads: PoolingHeads) -> None:
        self.config = config
        self.pooling_heads = heads
        self._backend = backend
        self._program = program

    @property
    def sampler(self) -> Sampler:
        return self._backend.sampler

    @property
    def progress(self) -> int:
        return self._program.progress

    def forward(self, batch: Batch) -> Outputs:
        return self._program.run(batch)

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        self._backend.copy_blocks(pairs)


def cache_shape(config: ModelConfig, block_size: int, num_blocks: int) -> CacheShape:
    """The KV cache that a backend must hold for this model. block_size: tokens."""
    return CacheShape(config.num_layers, config.num_kv_heads, config.head_dim, block_size, num_blocks)


def build_model(stored: StoredModel, backend: Backend, max_model_len: int) -> BuiltModel:
    """Load every tensor into the backend, which was made for `cache_shape(stored.config, ...)`.

    max_model_len: tokens; the longest sequence to be served. Peak memory is the packed weights and one tensor in
    float32.
    """
    config = stored.config
    rope = backend.packer.pack_table(rope_table(config, max_model_len))
    with blamed(config):
        model = architecture(config)(config, stored, backend.packer, rope)
        program = backend.compile(model.forward)
    return BuiltModel(config, backend, program, getattr(model, "pooling_heads", PoolingHeads()))
