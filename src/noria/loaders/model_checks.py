"""What must hold between the values of a model's configuration, whatever file they came from."""

from __future__ import annotations

from noria.config.errors import ModelError
from noria.config.model import ModelConfig, RopeConfig
from noria.loaders.fields import MAX_INTEGER


def check_model(config: ModelConfig, num_tensors: int, source: str) -> ModelConfig:
    """Returns config. Raises ModelError naming `source` and the two values that contradict each other.

    num_tensors: how many the checkpoint holds; every layer has some of its own.
    """
    if config.num_layers > num_tensors:
        raise ModelError(
            f"{source}: says the model has {config.num_layers} layers, but there are only {num_tensors} tensors"
        )
    if config.num_heads % config.num_kv_heads:
        raise ModelError(
            f"{source}: the number of attention heads ({config.num_heads}) must be a multiple of "
            f"the number of key-value heads ({config.num_kv_heads})"
        )
    _check_tokens(config, source)
    _check_rope(config.rope, config.head_dim, source)
    return config


def head_dim_of(hidden_size: int, num_heads: int, source: str) -> int:
    """The size of a head where the file does not state it. Raises ModelError."""
    if hidden_size % num_heads:
        raise ModelError(
            f"{source}: the hidden size ({hidden_size}) must be a multiple of the number of attention heads "
            f"({num_heads}), as no head size is given"
        )
    return hidden_size // num_heads


def rotary_dim_of(stated: int, head_dim: int) -> int:
    """As RopeConfig has it: 0 for a whole head."""
    return 0 if stated == head_dim else stated


def reach_of(stated: int, rope: RopeConfig) -> int:
    """The longest context, in tokens: YaRN reaches factor x original, which some files do not repeat."""
    if rope.kind != "yarn" or rope.original_max_position is None:
        return stated
    return max(stated, int(min(rope.original_max_position * rope.factor, MAX_INTEGER)))


def _check_tokens(config: ModelConfig, source: str) -> None:
    ids = list(config.eos_token_ids)
    if config.bos_token_id is not None:
        ids.append(config.bos_token_id)
    for token_id in ids:
        if not 0 <= token_id < config.vocab_size:
            raise ModelError(
                f"{source}: the special token id {token_id} is outside the vocabulary of {config.vocab_size}"
            )


def _check_rope(rope: RopeConfig, head_dim: int, source: str) -> None:
    dim = rope.rotary_dim or head_dim
    if dim % 2 or dim > head_dim:
        raise ModelError(
            f"{source}: the rotary dimension must be even and at most the head size {head_dim}, found {dim}"
        )
    if rope.kind == "dynamic" and dim < 4:
        raise ModelError(f"{source}: dynamic rope needs at least 4 rotary dimensions, found {dim}")
    for name in ("short_factor", "long_factor", "frequency_factors"):
        factors = getattr(rope, name)
        if factors and len(factors) != dim // 2:
            raise ModelError(
                f"{source}: the rope's {name} must hold {dim // 2} numbers, one for each pair of dimensions, "
                f"found {len(factors)}"
            )
