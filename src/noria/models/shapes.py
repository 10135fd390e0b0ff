"""The tensors a decoder is made of: logical names and shapes, from its configuration alone.

Matrices are [out, in]. Names: `embedding`, `norm`, `head` (absent when tied, and where there are no logits),
`classifier.weight` where there is a classifier, and per layer `layers.3.` followed by `input_norm`, `mlp_norm`,
`q.weight`, `q.bias`, `k.`, `v.`, `o.`, `q_norm`, `k_norm`, `gate.`, `up.`, `down.`.
"""

from __future__ import annotations

from noria.config.model import ModelConfig

Shapes = dict[str, tuple[int, ...]]


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
