"""The native backend: a model recorded once, then one call into C++ a step, which lets the interpreter go on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from noria.config.errors import ConfigError
from noria.kernels.batch import Batch, Outputs
from noria.kernels.native import _native
from noria.kernels.native.formats import Formats
from noria.kernels.native.packing import NativePacker
from noria.kernels.native.recording import RecordingOps
from noria.kernels.native.sampling import NativeSampler
from noria.kernels.native.support import model_obstacle
from noria.kernels.observing import ObservedOps, OpCall, Saw
from noria.kernels.ops import BackendOptions, Forward


class NativeBackend:
    """A kernels.ops.Backend.

    Weights take the form that `formats` decides on. Quantised ones meet activations rounded to integers, with a scale
    for each 32 of them: of 16 bits before the logits, of 8 elsewhere where the instruction set
    level multiplies those exactly. Keys and values are rounded to the asked kv_dtype as they are stored. Sums are
    float32.
    """

    def __init__(self, options: BackendOptions) -> None:
        """ConfigError for what it cannot serve."""
        shape = options.cache
        obstacle = model_obstacle(options.dtype, shape.head_dim, shape.block_size)
        if obstacle is not None:
            raise ConfigError(f"the native backend cannot serve this model: {obstacle}")
        self._pool = _native.Pool(options.num_threads)
        self.packer = NativePacker(Formats(options.dtype, options.quantization), self._pool)
        self.sampler = NativeSampler(self._pool)
        self._cache = _native.KvCache(
            _native.CacheShape(
                shape.num_layers, shape.num_kv_heads, shape.head_dim, shape.block_size, shape.num_blocks
            ),
            options.kv_dtype or options.dtype,
        )

    def compile(self, forward: Forward) -> NativeProgram:
        plan = _native.Plan(self._pool, self._cache)
        forward(RecordingOps(plan))
        return NativeProgram(plan)

    def watch(self, forward: Forward, batch: Batch, saw: Saw) -> None:
        plan = _native.Plan(self._pool, self._cache)
        calls: list[tuple[OpCall, int | None]] = []
        forward(ObservedOps(RecordingOps(plan), lambda *call: calls.append(call)))
        logits, hidden = _blank_outputs(plan, batch)
        ends = {"lm_head": logits, "hidden": hidden}

        def after(index: int) -> None:
            call, buffer = calls[index]
            if call.name in ends:
                saw(call, ends[call.name])
                return
            rows = np.empty((len(batch.token_ids), plan.width_of(buffer)), np.float32)
            plan.read(buffer, rows)
            saw(call, rows[:, : call.width])

        plan.watch(batch, logits, hidden, after)

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        for source, destination in pairs:
            self._cache.copy_block(source, destination)


class NativeProgram:
    """A kernels.ops.Program. One step at a time."""

    def __init__(self, plan: _native.Plan) -> None:
        self._plan = plan

    @property
    def op_times(self) -> list[tuple[str, float]]:
        """The last step's ops in order, and the seconds that each took."""
        times: list[tuple[str, float]] = self._plan.op_times
        return times

    @property
    def progress(self) -> int:
        num_ops: int = self._plan.num_ops_run
        return num_ops

    def run(self, batch: Batch) -> Outputs:
        """ValueError for a batch that does not fit the model or its cache."""
        logits, hidden = _blank_outputs(self._plan, batch)
        self._plan.run(batch, logits, hidden)
        return Outputs(logits, hidden)


def _blank_outputs(plan: _native.Plan, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
    logits = np.empty((len(batch.logit_rows), plan.num_logits), np.float32)
    return logits, np.empty((len(batch.hidden_rows), plan.hidden_width), np.float32)
