"""What a model is: its shapes and constants, whatever file format they were read from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """Rotary position embedding of one model (half-split, 'NeoX' pairing: dimension i turns with i + dim/2).

    kind: none | default | linear | dynamic | yarn | longrope | llama3 | factors. With none nothing turns.
    'factors' divides each base frequency by the number at its index in `frequency_factors` (GGUF files store
    Llama 3's scaling this way).
    """

    kind: str = "default"
    theta: float = 10000.0
    rotary_dim: int = 0  # leading dimensions of a head that turn; 0 means all of them
    factor: float = 1.0
    original_max_position: int | None = None  # context length before scaling
    low_freq_factor: float = 1.0  # llama3
    high_freq_factor: float = 4.0  # llama3
    beta_fast: float = 32.0  # yarn
    beta_slow: float = 1.0  # yarn
    truncate: bool = True  # yarn: round the correction range to whole dimensions
    attention_factor: float | None = None  # yarn, longrope: cos/sin scale; None derives it
    mscale: float | None = None  # yarn
    mscale_all_dim: float | None = None  # yarn
    short_factor: tuple[float, ...] = ()  # longrope
    long_factor: tuple[float, ...] = ()  # longrope
    frequency_factors: tuple[float, ...] = ()  # factors


@dataclass(frozen=True, slots=True)
class EncoderConfig:
    """What a bidirectional encoder of the BERT class has and a decoder has not.

    num_token_types: rows of the table of token types; a sequence's tokens have type 0, or 1 in the second text of a
    pair where there are two. num_positions: rows of the table of positions; position_offset: those of them before
    that of a sequence's first token.
    """

    num_token_types: int
    num_positions: int
    position_offset: int = 0


@dataclass(frozen=True, slots=True)
class EmbeddingConfig:
    """How a checkpoint says that its hidden states become the vector of a text.

    pooling: last | mean | cls. normalize: to a length of 1.
    """

    pooling: str
    normalize: bool


@dataclass(frozen=True, slots=True)
class ClassifierConfig:
    """labels: what it tells apart, by output. activation: identity | sigmoid | softmax, what is made of its outputs.

    pooling: last | cls, whose hidden state it reads.
    """

    labels: tuple[str, ...]
    activation: str
    pooling: str = "last"


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Shapes of a model: of a decoder, or of an encoder where `encoder` is set. Lengths are in tokens, sizes in
    elements.
    """

    architecture: str  # a name of models/registry.py, or of an installed package
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_position: int
    norm_eps: float
    rope: RopeConfig
    tie_word_embeddings: bool
    hidden_act: str = "silu"
    qkv_bias: bool = False
    output_bias: bool = False  # bias of the attention's output projection
    mlp_bias: bool = False
    windows: tuple[int, ...] = ()  # per layer: tokens a query may look back on, itself included; 0 is all
    eos_token_ids: tuple[int, ...] = ()
    bos_token_id: int | None = None
    has_logits: bool = True  # it may lack an output over the vocabulary; then nothing can be generated
    embedding: EmbeddingConfig | None = None  # None: the checkpoint does not say
    classifier: ClassifierConfig | None = None
    matryoshka: tuple[int, ...] | None = (
        None  # to what its embeddings may be cut; (): to anything; None: not at all
    )
    extras: Mapping[str, Any] = field(
        default_factory=dict, hash=False
    )  # an installed architecture's own constants
    encoder: EncoderConfig | None = None

    @property
    def num_kv_elements_per_token(self) -> int:
        """Keys and values of one token over all layers, in elements."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim

    def window(self, layer: int) -> int:
        """How many tokens a query of `layer` may look back on, itself included; 0 means all."""
        return self.windows[layer] if self.windows else 0
