"""The reference backend: torch, op by op, readable and exact."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from noria.config.errors import ConfigError
from noria.kernels.batch import Batch, Outputs
from noria.kernels.observing import ObservedOps, OpCall, Saw
from noria.kernels.ops import BackendOptions, Ending, Forward, Ops
from noria.kernels.torch_ops.cache import KvCache
from noria.kernels.torch_ops.packing import TorchPacker
from noria.kernels.torch_ops.safe_rows import safe_rows
from noria.kernels.torch_ops.safe_tiles import safe_tiles
from noria.kernels.torch_ops.scratch import Scratch
from noria.kernels.torch_ops.step import Safe, TorchOps
from noria.kernels.torch_ops.survey import Survey
from noria.kernels.torch_ops.threads import torch_threads
from noria.sampling.sampler import ReferenceSampler

TILES_BYTES = 16 * 2**20  # what attention gathers and scores at once

_NO_LOGITS = np.empty((0, 0), np.float32)
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class TorchBackend:
    """A kernels.ops.Backend. Weights and KV are stored in the asked dtypes, everything is computed in float32."""

    def __init__(self, options: BackendOptions) -> None:
        """ConfigError for an unknown dtype, one that it cannot hold KV in, and where weights are to be quantised."""
        kv_dtype = options.kv_dtype or options.dtype
        for dtype in (options.dtype, kv_dtype):
            if dtype not in _DTYPES:
                raise ConfigError(f"dtype {dtype!r} is not supported; supported: {', '.join(_DTYPES)}")
        if options.quantization != "none":
            raise ConfigError(f"the torch backend cannot round weights to {options.quantization}")
        self.packer = TorchPacker(_DTYPES[options.dtype], options.device)
        self.sampler = ReferenceSampler()
        self._options = options
        self._cache = KvCache(options.cache, _DTYPES[kv_dtype], options.device)

    def compile(self, forward: Forward) -> TorchProgram:
        """Find out which shapes keep a row's bits in this model's products."""
        survey, num_threads = Survey(forward), self._options.num_threads
        (heads,) = survey.heads  # one shape of attention, as there is one cache
        shape = (heads.num_kv_heads, heads.group, heads.head_dim)
        with torch.inference_mode():
            tiles = safe_tiles(*shape, TILES_BYTES, num_threads)
            safe = Safe(safe_rows(survey.panel_shapes, num_threads), tiles)
        return TorchProgram(forward, self._cache, safe, self._options)

    def watch(self, forward: Forward, batch: Batch, saw: Saw) -> None:
        num_tokens = len(batch.token_ids)

        def told(call: OpCall, buffer: torch.Tensor) -> None:
            saw(call, buffer[:num_tokens].cpu().numpy().copy())

        def observed(ops: Ops) -> Ending:
            return forward(ObservedOps(ops, told))

        self.compile(forward).run_as(observed, batch)

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        self._cache.copy_blocks(pairs)


class TorchProgram:
    """A kernels.ops.Program that calls the model's forward anew for each batch.

    progress: number of runs.
    """

    def __init__(self, forward: Forward, cache: KvCache, safe: Safe, options: BackendOptions) -> None:
        self._forward = forward
        self._cache = cache
        self._safe = safe
        self._num_threads = options.num_threads
        self._scratch = Scratch(options.device)
        self.progress = 0

    def run(self, batch: Batch) -> Outputs:
        return self.run_as(self._forward, batch)

    def run_as(self, forward: Forward, batch: Batch) -> Outputs:
        """With another forward than the one compiled, which must do the same products."""
        # Both settings belong to the calling thread, and the engine's is not the one that built the model.
        with torch.inference_mode(), torch_threads(self._num_threads):
            ending = forward(TorchOps(batch, self._cache, self._safe, self._scratch))
            hidden = ending.hidden.cpu().numpy()
            logits = _NO_LOGITS if ending.logits is None else ending.logits.cpu().numpy()
        self.progress += 1
        return Outputs(logits, hidden)
