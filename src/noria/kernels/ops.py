"""What a model is written against: weights packed once, then a straight line of ops a step.

A model's `forward(ops)` calls the ops below in a fixed order. Weights, buffers and constants are all they take;
what is in the batch is known to the backend alone. So a backend may run them as they come, or record them once
and replay the record at every step.

# T tokens of a step, R rows whose logits are wanted, P rows whose hidden states are, H hidden size,
# F intermediate size, V vocabulary
# Hq query heads, Hkv key/value heads, D head dimension
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from noria.kernels.batch import Batch, Outputs

if TYPE_CHECKING:
    from noria.core.plan import TokenLogprobs
    from noria.kernels.observing import Saw
    from noria.sampling.logprobs import Asked
    from noria.sampling.nonfinite import SamplingFault
    from noria.sampling.params import SamplingParams
    from noria.sampling.token_masks import Allowed

Weight = Any  # a backend's own handle on something packed at load
Buffer = Any  # a backend's own handle on an activation of the step
SampledRequest = Any  # a sampler's own handle on a request


class Activation(str, Enum):
    """The function inside an MLP, spelt as checkpoints spell it. GELU is the exact one, by the error function."""

    SILU = "silu"
    GELU_TANH = "gelu_pytorch_tanh"
    GELU = "gelu"
    RELU = "relu"


@dataclass(frozen=True, slots=True)
class Norm:
    """x / sqrt(mean(x^2) + eps) * gamma over the last dimension, in float32.

    With a beta the layer norm: (x - mean(x)) / sqrt(variance(x) + eps) * gamma + beta.
    """

    gamma: Weight
    eps: float
    beta: Weight | None = None


@dataclass(frozen=True, slots=True)
class EmbeddingSum:
    """What is added to a token's own embedding, and the norm over the sum.

    positions: [positions, H], by the token's position. token_types: [types, H], by its type.
    """

    positions: Weight
    token_types: Weight
    norm: Norm


@dataclass(frozen=True, slots=True)
class Heads:
    """Query head h reads key/value head h // (num_heads // num_kv_heads)."""

    num_heads: int
    num_kv_heads: int
    head_dim: int

    @property
    def group(self) -> int:
        """Query heads per key/value head."""
        return self.num_heads // self.num_kv_heads

    @property
    def query_size(self) -> int:
        return self.num_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        return self.num_kv_heads * self.head_dim


@dataclass(frozen=True, slots=True)
class QkvProjection:
    """One layer's way from the residual stream to queries, keys and values.

    weight: [Hq * D + 2 * Hkv * D, H], rows q | k | v. query_norm, key_norm: over D, before the rotation.
    rope: a table without columns where nothing turns.
    """

    weight: Weight
    heads: Heads
    rope: Weight
    query_norm: Norm | None = None
    key_norm: Norm | None = None


class Reach(Enum):
    """What a token attends to of its own sequence."""

    PAST = "past"  # itself and what comes before it
    WHOLE = "whole"  # everything: all of the sequence must be in the step


@dataclass(frozen=True, slots=True)
class Attention:
    """window: tokens a query may look back on, itself included; 0 means all."""

    heads: Heads
    scale: float
    window: int = 0
    reach: Reach = Reach.PAST


@dataclass(frozen=True, slots=True)
class CacheShape:
    """The paged KV cache of a model, all layers."""

    num_layers: int
    num_kv_heads: int
    head_dim: int
    block_size: int  # tokens
    num_blocks: int


@dataclass(frozen=True, slots=True)
class BackendOptions:
    dtype: str  # float32 | bfloat16 | float16: how weights are stored
    device: str  # cpu
    num_threads: int
    cache: CacheShape
    quantization: str = "none"  # none | w8 | w4: what weights are rounded to while they are packed
    kv_dtype: str | None = None  # float32 | bfloat16 | float16 | int8: how KV is stored; None: as dtype says


class MatrixRole(Enum):
    """What a matrix is for, as far as the form in which it is packed may depend on it."""

    INNER = "inner"  # a projection within a layer
    VOCABULARY = "vocabulary"  # a row for each token: the embedding, or the output


class Matrix(Protocol):
    """A matrix still in its file, rows in the ops' order. Nothing is read until it is asked for, once."""

    @property
    def where(self) -> str:
        """Its file and what it is called there, for messages."""
        ...

    @property
    def shape(self) -> tuple[int, int]:
        """[N, K]: outputs, inputs."""
        ...

    @property
    def kind(self) -> str:
        """How its numbers are stored: F32, BF16, Q4_1, ... as GGUF spells it."""
        ...

    def floats(self) -> np.ndarray:
        """[N, K] float32, dequantised; freshly made."""
        ...

    def pieces(self) -> Iterator[np.ndarray]:
        """[n, bytes of a row] uint8, as the file has them: some rows after the other, from the top."""
        ...


class Packer(Protocol):
    """Takes weights in at load. Arrays are float32 and may be dropped by the caller at once.

    A packer reads one matrix at a time and lets go of it before the next.
    """

    def pack_linear(self, shape: tuple[int, int], parts: Sequence[Matrix], bias: np.ndarray | None) -> Weight:
        """y = x W^T + bias. shape: [N, K] of W; parts: its rows from the top, any number [n, K]; bias: [N]."""
        ...

    def pack_glu(self, shape: tuple[int, int], parts: Sequence[Matrix], bias: np.ndarray | None) -> Weight:
        """As pack_linear, for `norm_glu`. shape: [2 * F, K]; parts: gate [F, K], then up [F, K]."""
        ...

    def pack_vocabulary(self, table: Matrix) -> Weight:
        """table: [V, H], the embedding or the output. The handle serves `embed` and `lm_head`."""
        ...

    def pack_vector(self, vector: np.ndarray) -> Weight:
        """vector: [n], of a norm."""
        ...

    def pack_table(self, table: np.ndarray) -> Weight:
        """table: [places, K], kept in float32: of `EmbeddingSum`, or of the rotation, [positions, rotary_dim], the
        cosines of the rotary_dim / 2 angles and then their sines.
        """
        ...


class Ops(Protocol):
    """The ops of one step. Buffers are float32 as far as a model can tell; x is the residual stream [T, H].

    norm: None where x is taken as it is.
    """

    def embed(self, table: Weight, beside: EmbeddingSum | None = None) -> Buffer:
        """-> x: the batch's tokens looked up, added to what is beside them."""
        ...

    def norm_qkv(self, x: Buffer, norm: Norm | None, projection: QkvProjection, layer: int) -> Buffer:
        """Normalise, project, norm the heads, rotate; write K and V into the cache -> q [T, Hq * D]."""
        ...

    def attend(self, q: Buffer, attention: Attention, layer: int) -> Buffer:
        """Attention of each token over the KV of its own sequence, as far as it reaches -> [T, Hq * D]."""
        ...

    def linear_add(self, inputs: Buffer, weight: Weight, x: Buffer) -> None:
        """x += inputs W^T + bias. inputs: [T, K]."""
        ...

    def normalise(self, x: Buffer, norm: Norm) -> None:
        """In place."""
        ...

    def norm_glu(self, x: Buffer, norm: Norm | None, weight: Weight, activation: Activation) -> Buffer:
        """Normalise, project to gate and up -> activation(gate) * up [T, F]."""
        ...

    def norm_activate(self, x: Buffer, norm: Norm | None, weight: Weight, activation: Activation) -> Buffer:
        """Normalise, project -> activation of it [T, F]."""
        ...

    def lm_head(self, x: Buffer, norm: Norm, weight: Weight) -> Buffer:
        """Normalise and project the wanted rows -> logits [R, V]."""
        ...

    def hidden(self, x: Buffer, norm: Norm | None) -> Buffer:
        """The wanted rows, normalised where they are not yet -> [P, H]."""
        ...


@dataclass(frozen=True, slots=True)
class Ending:
    """What a forward ends in: each of the two ops once. logits: None of a model without them."""

    logits: Buffer | None
    hidden: Buffer


Forward = Callable[[Ops], Ending]


class Program(Protocol):
    """A model's forward, ready to run on any batch.

    progress: moves as work does, if need be within a run; may be read from any thread.
    """

    @property
    def progress(self) -> int: ...

    def run(self, batch: Batch) -> Outputs:
        """Write the batch's KV; return what was wanted of its rows."""
        ...


class Sampler(Protocol):
    """Chooses tokens from a step's logits [R, V] float32, and leaves them as they are.

    Every sampler chooses what noria.sampling.sampler says: a function of the request and its row alone.
    """

    def admit(
        self,
        params: SamplingParams,
        seed: int,
        token_ids: Sequence[int],
        num_prompt: int,
        eos_token_ids: Sequence[int],
    ) -> SampledRequest:
        """token_ids: all known tokens; [0, num_prompt) is the prompt, the rest was sampled earlier.

        All token ids, those of `params` included, must be below the vocabulary's size.
        """
        ...

    def sample(
        self,
        logits: np.ndarray,
        rows: Sequence[int],
        requests: Sequence[SampledRequest],
        allowed: Allowed | None = None,
    ) -> list[int | SamplingFault]:
        """The next token of each request from the row at its place, or why there is none.

        A token joins its request's output. rows: ascending, one for each of the requests, which all differ.
        allowed: the tokens that each may choose, None: all.
        """
        ...

    def logprobs(self, logits: np.ndarray, asked: Sequence[Asked]) -> list[TokenLogprobs | SamplingFault]:
        """Log-probabilities of tokens under a row's softmax, whatever any request makes of it."""
        ...


class Backend(Protocol):
    """Where a model's weights and KV cache live. A row's results are the same bits in every batch."""

    @property
    def packer(self) -> Packer: ...

    @property
    def sampler(self) -> Sampler: ...

    def compile(self, forward: Forward) -> Program:
        """Called once, after the last weight was packed."""
        ...

    def watch(self, forward: Forward, batch: Batch, saw: Saw) -> None:
        """Compile and run on one batch, telling what each op wrote. Not for serving."""
        ...

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy whole KV blocks, all layers: (source, destination) pairs, in the order given."""
        ...
