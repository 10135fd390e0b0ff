"""What a model takes in memory, from its configuration alone.

Weights: matrices in the serving dtype, vectors and tables of places in float32, a tied table once; nothing is padded.
KV: keys and values of a token over all layers, in a dtype of their own.

Workspace, with H hidden, Q and K query and key/value sizes over all heads, F intermediate, V vocabulary:

    a step token    4 x (3 H + 4 (Q + 2 K) + 4 F) + 64 bytes: residual and normalised stream, the layer's widest
                    moment of either attention or MLP, and indices
    a sequence      4 x (2 V + 2 H) bytes: its row of logits, the sampler's copy, its last hidden state; of an
                    encoder, which gives no logits, 4 x 2 H
    a context token 4 x rotary_dim bytes of rope table, and 4 for its place in the cache's index
    always          attention's gathered chunks and scores and one panel of weights widened to float32; or the
                    largest tensor in float32 while it is read, if that is more

Of a backend that packs matrices by their stored kind: what it says that each takes. A step token is reckoned with
4 x (H + 2 Q + 2 K + 2 F + max(H, Q, F)) + 64 bytes: residual stream, q|k|v, attention's output, the gate's, which may
be there in floats and in codes, and the widest linear input. Its sampler copies no row; 20 V bytes of each thread's own
are paid for by the copies of five sequences. While weights are read, a layer's largest matrix may have to be held in
float32; tables of the vocabulary never are.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Protocol

from noria.config.errors import ConfigError
from noria.config.footprint import Footprint
from noria.config.model import ModelConfig
from noria.kernels.ops import MatrixRole
from noria.models.registry import architecture
from noria.models.rope import max_usable_position, rotary_dim
from noria.models.shapes import is_kept_in_floats
from noria.models.stored import StoredModel

_ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
_FLOAT_BYTES = 4

# Of the torch backend; a test there keeps them equal to what it allocates.
ATTENTION_BYTES = 48 * 2**20
PANEL_ROWS = 2048

# Of a packing backend: scores of a tile, and the shares of chunks that are computed apart.
PACKED_ATTENTION_BYTES = 16 * 2**20

# Of the native backend's cache in int8: dimensions of a key that share a scale. A value has one.
INT8_KEY_SECTION = 32


def footprint(config: ModelConfig, dtype: str, kv_dtype: str | None = None) -> Footprint:
    """Sizes in bytes, by the formulas above; kv_dtype None is dtype.

    ConfigError for an unknown dtype, ModelError for a bad model.
    """
    if dtype not in _ITEM_BYTES:
        raise ConfigError(f"dtype {dtype!r} is not supported; supported: {', '.join(_ITEM_BYTES)}")
    kv_dtype = kv_dtype or dtype
    shapes = architecture(config).shapes(config).values()
    query, kv = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    hidden, inner = config.hidden_size, config.intermediate_size
    num_logits = 0 if config.encoder else config.vocab_size
    largest_tensor = max(math.prod(shape) for shape in shapes)
    panel = PANEL_ROWS * max(hidden, inner, query)
    return Footprint(
        dtype=dtype,
        kv_dtype=kv_dtype,
        weights_bytes=weights_bytes(config, dtype),
        kv_bytes_per_token=kv_bytes(config, kv_dtype),
        max_position=max_usable_position(config),
        keeps_kv=config.encoder is None,
        workspace_bytes=max(ATTENTION_BYTES + _FLOAT_BYTES * panel, _FLOAT_BYTES * largest_tensor),
        workspace_bytes_per_step_token=_FLOAT_BYTES * (3 * hidden + 4 * (query + 2 * kv) + 4 * inner) + 64,
        workspace_bytes_per_seq=_FLOAT_BYTES * (2 * num_logits + 2 * hidden),
        workspace_bytes_per_context_token=_FLOAT_BYTES * (rotary_dim(config) + 1),
    )


class MatrixBytes(Protocol):
    """What a backend takes for a matrix [N, K] that is stored as `kind`, in bytes."""

    def __call__(self, kind: str, shape: tuple[int, int], role: MatrixRole, /) -> int: ...


def packed_footprint(
    model: StoredModel, dtype: str, quantization: str, matrix_bytes: MatrixBytes, kv_dtype: str | None = None
) -> Footprint:
    """As footprint, for a backend that keeps matrices in a form of its own."""
    config = model.config
    plain = footprint(config, dtype, kv_dtype)
    weights, largest = 0, 0
    for name, shape in architecture(config).shapes(config).items():
        if is_kept_in_floats(name, shape):
            weights += _FLOAT_BYTES * math.prod(shape)
            continue
        matrix = model.matrix(name)
        role = MatrixRole.VOCABULARY if name in ("embedding", "head") else MatrixRole.INNER
        weights += matrix_bytes(matrix.kind, matrix.shape, role)
        if role is MatrixRole.INNER:
            largest = max(largest, math.prod(shape))
    query, kv = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    hidden, inner = config.hidden_size, config.intermediate_size
    row = hidden + 2 * query + 2 * kv + 2 * inner + max(hidden, query, inner)
    return replace(
        plain,
        quantization=quantization,
        weights_bytes=weights,
        workspace_bytes=PACKED_ATTENTION_BYTES + _FLOAT_BYTES * largest,
        workspace_bytes_per_step_token=_FLOAT_BYTES * row + 64,
    )


def kv_bytes(config: ModelConfig, kv_dtype: str) -> int:
    """Bytes of a token's keys and values over all layers. ConfigError for an unknown format."""
    if kv_dtype in _ITEM_BYTES:
        return config.num_kv_elements_per_token * _ITEM_BYTES[kv_dtype]
    if kv_dtype != "int8":
        supported = ", ".join((*_ITEM_BYTES, "int8"))
        raise ConfigError(f"kv_cache_dtype {kv_dtype!r} is not supported; supported: {supported}")
    num_scales = -(-config.head_dim // INT8_KEY_SECTION) + 1
    return config.num_layers * config.num_kv_heads * (2 * config.head_dim + _FLOAT_BYTES * num_scales)


def weights_bytes(config: ModelConfig, dtype: str) -> int:
    """Bytes of the packed weights, rope tables aside."""
    total = 0
    for name, shape in architecture(config).shapes(config).items():
        total += math.prod(shape) * (_FLOAT_BYTES if is_kept_in_floats(name, shape) else _ITEM_BYTES[dtype])
    return total
