"""The tensors a model is made of: logical names and shapes, from its configuration alone.

Matrices are [out, in]. A decoder's names: `embedding`, `norm`, `head` (absent when tied, and where there are no
logits), `classifier.weight` where there is a classifier, and per layer `layers.3.` followed by `input_norm`,
`mlp_norm`, `q.weight`, `q.bias`, `k.`, `v.`, `o.`, `q_norm`, `k_norm`, `gate.`, `up.`, `down.`.

An encoder's: `embedding`, `positions`, `token_types`, `embedding_norm.weight`, `embedding_norm.bias`; those of its
classifier, if it has one, `pooler.` and `classifier.`; and per layer `q.`, `k.`, `v.`, `o.`, `attention_norm.`, `up.`,
`down.`, `mlp_norm.`, each with weight and bias.
"""

from __future__ import annotations

from noria.config.model import EncoderConfig, ModelConfig

Shapes = dict[str, tuple[int, ...]]

# Looked up or multiplied as they are, in float32, whatever the dtype of the matrices.
FLOAT_TABLES = frozenset({"positions", "token_types", "pooler.weight", "classifier.weight"})


def is_kept_in_floats(name: str, shape: tuple[int, ...]) -> bool:
    """Vectors and FLOAT_TABLES."""
    return len(shape) == 1 or name in FLOAT_TABLES


def outer_shapes(config: ModelConfig) -> Shapes:
    """Everything outside the layers."""
    shapes: Shapes = {
        "embedding": (config.vocab_size, config.hidden_size),
        "norm": (config.hidden_size,),
    }
    if config.has_logits and not config.tie_word_embeddings:
        shapes["head"] = (config.vocab_size, config.hidden_size)
    if config.classifier is not None:
        shapes["classifier.weight"] = (len(config.classifier.labels), config.hidden_size)
    return shapes


def attention_shapes(config: ModelConfig, layer: int) -> Shapes:
    """Input norm and the four projections, with the biases that the configuration asks for."""
    prefix = f"layers.{layer}."
    query, kv = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    shapes: Shapes = {prefix + "input_norm": (config.hidden_size,)}
    for name, size in (("q", query), ("k", kv), ("v", kv)):
        shapes[f"{prefix}{name}.weight"] = (size, config.hidden_size)
        if config.qkv_bias:
            shapes[f"{prefix}{name}.bias"] = (size,)
    shapes[prefix + "o.weight"] = (config.hidden_size, query)
    if config.output_bias:
        shapes[prefix + "o.bias"] = (config.hidden_size,)
    return shapes


def head_norm_shapes(config: ModelConfig, layer: int) -> Shapes:
    """The norms over each query and key head."""
    return {f"layers.{layer}.{name}": (config.head_dim,) for name in ("q_norm", "k_norm")}


def mlp_shapes(config: ModelConfig, layer: int) -> Shapes:
    """Norm and the three projections of a gated MLP."""
    prefix = f"layers.{layer}."
    hidden, inner = config.hidden_size, config.intermediate_size
    shapes: Shapes = {prefix + "mlp_norm": (hidden,)}
    for name, out, into in (("gate", inner, hidden), ("up", inner, hidden), ("down", hidden, inner)):
        shapes[f"{prefix}{name}.weight"] = (out, into)
        if config.mlp_bias:
            shapes[f"{prefix}{name}.bias"] = (out,)
    return shapes


def encoder_outer_shapes(config: ModelConfig, encoder: EncoderConfig) -> Shapes:
    """An encoder's everything outside the layers."""
    hidden = config.hidden_size
    shapes: Shapes = {
        "embedding": (config.vocab_size, hidden),
        "positions": (encoder.num_positions, hidden),
        "token_types": (encoder.num_token_types, hidden),
        **_with_bias("embedding_norm", (hidden,)),
    }
    if config.classifier is not None:
        num_labels = len(config.classifier.labels)
        shapes |= _with_bias("pooler", (hidden, hidden)) | _with_bias("classifier", (num_labels, hidden))
    return shapes


def encoder_layer_shapes(config: ModelConfig, layer: int) -> Shapes:
    """Projections of attention and MLP, and the norm after each."""
    prefix, hidden, inner = f"layers.{layer}.", config.hidden_size, config.intermediate_size
    shapes: Shapes = {}
    for name in ("q", "k", "v", "o"):
        shapes |= _with_bias(prefix + name, (hidden, hidden))
    for name, shape in (("up", (inner, hidden)), ("down", (hidden, inner))):
        shapes |= _with_bias(prefix + name, shape)
    for name in ("attention_norm", "mlp_norm"):
        shapes |= _with_bias(prefix + name, (hidden,))
    return shapes


def _with_bias(name: str, shape: tuple[int, ...]) -> Shapes:
    return {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
