"""How fast the native attention is, on a model's heads and made-up keys: the second table of benchmarks/kernels.py."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from noria.kernels.batch import Batch
from noria.kernels.native.backend import NativeBackend, NativeProgram
from noria.kernels.ops import Attention, BackendOptions, CacheShape, Ending, Heads, Norm, Ops, QkvProjection

BLOCK_SIZE = 16
_HIDDEN = 32  # of the model around the attention, which is not looked at
_VOCABULARY = 64
_ITEM_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4, "int8": 1}

HEADS = {
    "135m": Heads(num_heads=9, num_kv_heads=3, head_dim=64),
    "1.7b": Heads(num_heads=16, num_kv_heads=8, head_dim=128),
}


@dataclass(frozen=True)
class AttentionCase:
    """Sequences that each compute num_new tokens, the last of which sees `context` tokens, itself included."""

    kv_dtype: str
    num_sequences: int
    num_new: int
    context: int

    @property
    def num_seen(self) -> float:
        """Keys that all queries see together."""
        first = self.context - self.num_new + 1
        return self.num_sequences * self.num_new * (first + self.context) / 2

    def kv_bytes(self, heads: Heads) -> float:
        """Of keys and values, each read once."""
        return 2.0 * self.num_sequences * self.context * heads.kv_size * _ITEM_BYTES[self.kv_dtype]

    def macs(self, heads: Heads) -> float:
        return 2.0 * self.num_seen * heads.query_size


@dataclass(frozen=True)
class _Matrix:
    """Numbers that no kernel's time depends on."""

    shape: tuple[int, int]
    where: str = "made up"
    kind: str = "F32"

    def floats(self) -> np.ndarray:
        return np.full(self.shape, 0.01, np.float32)

    def pieces(self) -> Iterator[np.ndarray]:
        yield self.floats().view(np.uint8)


def attention_cases(kv_dtypes: tuple[str, ...] = ("float16", "int8")) -> list[AttentionCase]:
    """Decodes alone and together, and chunks of a prompt at its start and far into it."""
    sizes = ((1, 1, 256), (1, 1, 4096), (32, 1, 256), (32, 1, 1024), (1, 256, 256), (1, 256, 4096))
    return [AttentionCase(kv_dtype, *size) for kv_dtype in kv_dtypes for size in sizes]


def time_attention(case: AttentionCase, heads: Heads, num_threads: int, seconds: float) -> float:
    """Seconds that the op takes, the median of many steps.

    Not the best one: a thread that keeps the time may come to the op when the others have done it.
    """
    program, batch = _program(case, heads, num_threads), _batch(case)
    times = [_once(program, batch)]
    while sum(times) < seconds or len(times) < 5:
        times.append(_once(program, batch))
    return statistics.median(times)


def _once(program: NativeProgram, batch: Batch) -> float:
    program.run(batch)
    return dict(program.op_times)["attend"]


def _program(case: AttentionCase, heads: Heads, num_threads: int) -> NativeProgram:
    num_blocks = case.num_sequences * -(-case.context // BLOCK_SIZE)
    shape = CacheShape(1, heads.num_kv_heads, heads.head_dim, BLOCK_SIZE, num_blocks)
    backend = NativeBackend(BackendOptions("float32", "cpu", num_threads, shape, kv_dtype=case.kv_dtype))
    packer = backend.packer
    norm = Norm(packer.pack_vector(np.ones(_HIDDEN, np.float32)), 1e-5)
    table = packer.pack_vocabulary(_Matrix((_VOCABULARY, _HIDDEN)))
    qkv = (heads.query_size + 2 * heads.kv_size, _HIDDEN)
    angles = np.zeros((case.context, heads.head_dim // 2), np.float32)
    rope = packer.pack_table(np.concatenate([np.cos(angles), np.sin(angles)], axis=1))
    projection = QkvProjection(packer.pack_linear(qkv, [_Matrix(qkv)], None), heads, rope)
    out = packer.pack_linear((_HIDDEN, heads.query_size), [_Matrix((_HIDDEN, heads.query_size))], None)

    def forward(ops: Ops) -> Ending:
        x = ops.embed(table)
        q = ops.norm_qkv(x, norm, projection, 0)
        ops.linear_add(ops.attend(q, Attention(heads, heads.head_dim**-0.5), 0), out, x)
        return Ending(ops.lm_head(x, norm, table), ops.hidden(x, norm))

    return backend.compile(forward)


def _batch(case: AttentionCase) -> Batch:
    """Blocks in an order that no prefetcher guesses."""
    num_blocks = -(-case.context // BLOCK_SIZE)
    order = np.random.default_rng(0).permutation(case.num_sequences * num_blocks)
    tables = order.reshape(case.num_sequences, num_blocks).astype(np.int32)
    positions = np.arange(case.context - case.num_new, case.context)
    slots = tables[:, positions // BLOCK_SIZE] * BLOCK_SIZE + positions % BLOCK_SIZE
    num_tokens = case.num_sequences * case.num_new
    return Batch(
        token_ids=np.zeros(num_tokens, np.int32),
        token_types=np.zeros(num_tokens, np.int32),
        positions=np.tile(positions, case.num_sequences).astype(np.int32),
        slots=np.ascontiguousarray(slots.reshape(-1), np.int32),
        query_starts=np.arange(0, num_tokens + 1, case.num_new, dtype=np.int32),
        context_lens=np.full(case.num_sequences, case.context, np.int32),
        block_tables=np.ascontiguousarray(tables),
        logit_rows=np.array([num_tokens - 1], np.int32),
        hidden_rows=np.zeros(0, np.int32),
    )
