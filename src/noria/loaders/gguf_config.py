"""A model's shapes and constants from GGUF metadata (keys `{architecture}.*`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from noria.config.errors import ModelError
from noria.config.model import ModelConfig
from noria.loaders.fields import Fields, is_number, shorten
from noria.loaders.gguf_file import StoredTensor
from noria.loaders.gguf_rope import FREQUENCIES, rope_config
from noria.loaders.model_checks import check_model, head_dim_of, reach_of

ARCHITECTURES = ("llama", "qwen2", "qwen3")  # Mistral's files say llama

# Settings that change what a model computes, and the value at which they change nothing. A file of a
# supported architecture that states another value is a different model.
_NEUTRAL: dict[str, float | bool] = {
    "expert_count": 0,
    "use_parallel_residual": False,
    "logit_scale": 1.0,
    "embedding_scale": 1.0,
    "residual_scale": 1.0,
    "attn_logit_softcapping": 0.0,
    "final_logit_softcapping": 0.0,
    "attention.causal": True,
    "attention.clamp_kqv": 0.0,
    "attention.max_alibi_bias": 0.0,
    "attention.output_scale": 1.0,
    "attention.scale": 0.0,
    "attention.temperature_scale": 0.0,
}


def model_config(
    fields: Fields,
    tensors: Mapping[str, StoredTensor],
    read: Callable[[str], np.ndarray],
    bos_token_id: int | None,
    eos_token_ids: tuple[int, ...],
) -> ModelConfig:
    """fields: the file's metadata. read: gives a tensor as float32. Raises ModelError."""
    arch = _architecture(fields)
    _refuse_unsupported(fields, arch)
    hidden_size = fields.integer(f"{arch}.embedding_length")
    num_layers = fields.integer(f"{arch}.block_count")
    num_heads = _same_in_all_layers(fields, f"{arch}.attention.head_count")
    head_dim = _head_dim(fields, arch, hidden_size, num_heads)
    stated_position = fields.integer(f"{arch}.context_length")
    frequencies = (lambda: read(FREQUENCIES)) if FREQUENCIES in tensors else None
    rope = rope_config(fields, arch, head_dim, stated_position, frequencies)
    config = ModelConfig(
        architecture=arch,
        vocab_size=_vocab_size(fields, arch, tensors),
        hidden_size=hidden_size,
        intermediate_size=_same_in_all_layers(fields, f"{arch}.feed_forward_length"),
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=_same_in_all_layers(fields, f"{arch}.attention.head_count_kv", num_heads),
        head_dim=head_dim,
        max_position=reach_of(stated_position, rope),
        norm_eps=fields.number(f"{arch}.attention.layer_norm_rms_epsilon"),
        rope=rope,
        tie_word_embeddings="output.weight" not in tensors,
        qkv_bias=_has_bias(tensors, "attn_q", "attn_k", "attn_v"),
        output_bias=_has_bias(tensors, "attn_output"),
        mlp_bias=_has_bias(tensors, "ffn_gate", "ffn_up", "ffn_down"),
        windows=_windows(fields, arch, min(num_layers, len(tensors))),
        eos_token_ids=eos_token_ids,
        bos_token_id=bos_token_id,
    )
    return check_model(config, len(tensors), fields.source)


def _architecture(fields: Fields) -> str:
    purpose = fields.text("general.type", "model")
    if purpose != "model":
        raise fields.fault("general.type", '"model"; adapters and projectors cannot be served by themselves')
    arch = fields.text("general.architecture")
    if arch not in ARCHITECTURES:
        raise ModelError(
            f"{fields.source}: the architecture {shorten(arch)} is not supported; "
            f"supported are {', '.join(ARCHITECTURES)}"
        )
    return arch


def _refuse_unsupported(fields: Fields, arch: str) -> None:
    for suffix, neutral in _NEUTRAL.items():
        value = fields.values.get(f"{arch}.{suffix}", neutral)
        is_comparable = isinstance(value, bool) or is_number(value)
        if not is_comparable or value != neutral:
            raise fields.fault(f"{arch}.{suffix}", f"{neutral}, other values are not supported")


def _same_in_all_layers(fields: Fields, key: str, default: int | None = None) -> int:
    """A count that files give once or layer by layer; layers that differ are not supported."""
    value = fields.values.get(key)
    if not isinstance(value, np.ndarray):
        return fields.integer(key, default)
    if value.dtype.kind not in "iu" or not len(value) or (value != value[0]).any():
        raise fields.fault(key, "one whole number, or an array of equal ones")
    return Fields({key: value[0].item()}, fields.source).integer(key)


def _head_dim(fields: Fields, arch: str, hidden_size: int, num_heads: int) -> int:
    key = f"{arch}.attention.key_length"
    head_dim = fields.optional_integer(key) or head_dim_of(hidden_size, num_heads, fields.source)
    if fields.integer(f"{arch}.attention.value_length", head_dim) != head_dim:
        raise fields.fault(f"{arch}.attention.value_length", f"{head_dim}, the size of a key")
    return head_dim


def _vocab_size(fields: Fields, arch: str, tensors: Mapping[str, StoredTensor]) -> int:
    stated = fields.optional_integer(f"{arch}.vocab_size")
    if stated is not None:
        return stated
    embedding = tensors.get("token_embd.weight")
    if embedding is None:
        raise ModelError(f"{fields.source}: has neither {arch}.vocab_size nor the tensor token_embd.weight")
    return embedding.shape[0]


def _has_bias(tensors: Mapping[str, StoredTensor], *parts: str) -> bool:
    endings = tuple(f".{part}.bias" for part in parts)
    return any(name.endswith(endings) for name in tensors)


def _windows(fields: Fields, arch: str, num_layers: int) -> tuple[int, ...]:
    window = fields.integer(f"{arch}.attention.sliding_window", 0, low=0)
    pattern = f"{arch}.attention.sliding_window_pattern"
    if pattern in fields:
        raise fields.fault(pattern, "absent; windows on some layers only are not supported in GGUF files")
    return (window,) * num_layers if window else ()
