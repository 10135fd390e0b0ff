"""Writes small GGUF models with the reference writer of the `gguf` package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFValueType, GGUFWriter
from gguf.constants import GGML_QUANT_SIZES
from gguf.quants import dequantize, quantize

SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MERGES = ("h e", "l l", "he ll", "hell o", "Ġ w", "o r", "Ġw or", "Ġwor ld")


def byte_characters() -> list[str]:
    """The printable characters that byte-level BPE writes for bytes 0 to 255."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    unprintable = [byte for byte in range(256) if byte not in printable]
    characters = {byte: chr(byte) for byte in printable}
    characters.update({byte: chr(256 + index) for index, byte in enumerate(unprintable)})
    return [characters[byte] for byte in range(256)]


def byte_level_tokens() -> list[str]:
    """A complete byte-level vocabulary: special tokens, the bytes, and what MERGES make."""
    return [*SPECIAL_TOKENS, *byte_characters(), *(merge.replace(" ", "") for merge in MERGES)]


@dataclass(frozen=True)
class TinyShape:
    """The defaults can be quantised in blocks of 32; the vocabulary is as big as the tokens unless stated."""

    hidden_size: int = 64
    intermediate_size: int = 96
    num_layers: int = 2
    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 16
    context_length: int = 256
    vocab_size: int | None = None
    rope_theta: float = 10000.0


# A model so small that a test can open it thousands of times.
MINUTE_SHAPE = TinyShape(
    hidden_size=8, intermediate_size=8, num_layers=1, num_heads=2, num_kv_heads=1, head_dim=4
)
MINUTE_TOKENS = ("<|im_start|>", "<|im_end|>", "a", "b")


def write_tiny_gguf(
    path: Path,
    arch: str = "llama",
    *,
    shape: TinyShape | None = None,
    kind: str = "F32",
    tokens: tuple[str, ...] | None = None,
    metadata: Mapping[str, Any] | None = None,
    tensors: Mapping[str, np.ndarray | None] | None = None,
) -> dict[str, np.ndarray]:
    """Write a model of random weights that runs, with a byte-level tokenizer.

    kind: how matrices are stored; norms and biases are always F32. metadata: sets or replaces keys; None
    leaves the key out. tensors: the same for tensors, as row-major float32 (`tensors=tiny_tensors(...)`
    makes the weights known beforehand). Returns the tensors' values as stored. Rows of attn_q and attn_k are
    written as given: in files of architecture llama they are meant in the interleaved order.
    """
    shape = shape or TinyShape()
    tokens = tokens or tuple(byte_level_tokens())
    writer = GGUFWriter(path, arch)
    for key, value in {**tiny_metadata(arch, shape, tokens), **(metadata or {})}.items():
        if value is not None:
            add_metadata(writer, key, value)
    stored: dict[str, np.ndarray] = {}
    for name, values in {**tiny_tensors(arch, shape, len(tokens)), **(tensors or {})}.items():
        if values is not None:
            number = GGMLQuantizationType[kind if values.ndim > 1 else "F32"]
            raw = encode(values, number)
            writer.add_tensor(name, raw, raw_dtype=number)
            stored[name] = dequantize(raw, number).reshape(values.shape)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return stored


def tiny_metadata(arch: str, shape: TinyShape, tokens: tuple[str, ...]) -> dict[str, Any]:
    return {
        f"{arch}.vocab_size": shape.vocab_size or len(tokens),
        f"{arch}.context_length": shape.context_length,
        f"{arch}.embedding_length": shape.hidden_size,
        f"{arch}.feed_forward_length": shape.intermediate_size,
        f"{arch}.block_count": shape.num_layers,
        f"{arch}.attention.head_count": shape.num_heads,
        f"{arch}.attention.head_count_kv": shape.num_kv_heads,
        f"{arch}.attention.key_length": shape.head_dim,
        f"{arch}.attention.value_length": shape.head_dim,
        f"{arch}.attention.layer_norm_rms_epsilon": 1e-5,
        f"{arch}.rope.dimension_count": shape.head_dim,
        f"{arch}.rope.freq_base": shape.rope_theta,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": list(tokens),
        "tokenizer.ggml.token_type": [3 if token.startswith("<|") else 1 for token in tokens],
        "tokenizer.ggml.merges": list(MERGES) if "Ġworld" in tokens else ["a b"],
        "tokenizer.ggml.bos_token_id": tokens.index("<|im_start|>"),
        "tokenizer.ggml.eos_token_id": tokens.index("<|im_end|>"),
    }


def tiny_tensors(arch: str, shape: TinyShape, vocab_size: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Row-major float32 weights by the format's names; the output matrix is left out, so it is tied."""
    random = np.random.default_rng(seed)

    def matrix(rows: int, columns: int) -> np.ndarray:
        return (random.standard_normal((rows, columns)) / np.sqrt(columns)).astype(np.float32)

    def vector(size: int, around: float) -> np.ndarray:
        return (around + 0.1 * random.standard_normal(size)).astype(np.float32)

    hidden, query, key = (
        shape.hidden_size,
        shape.num_heads * shape.head_dim,
        shape.num_kv_heads * shape.head_dim,
    )
    tensors = {"token_embd.weight": matrix(shape.vocab_size or vocab_size, hidden)}
    for layer in range(shape.num_layers):
        block = {
            "attn_norm.weight": vector(hidden, 1.0),
            "attn_q.weight": matrix(query, hidden),
            "attn_k.weight": matrix(key, hidden),
            "attn_v.weight": matrix(key, hidden),
            "attn_output.weight": matrix(hidden, query),
            "ffn_norm.weight": vector(hidden, 1.0),
            "ffn_gate.weight": matrix(shape.intermediate_size, hidden),
            "ffn_up.weight": matrix(shape.intermediate_size, hidden),
            "ffn_down.weight": matrix(hidden, shape.intermediate_size),
        }
        if arch == "qwen2":
            sizes = {"attn_q.bias": query, "attn_k.bias": key, "attn_v.bias": key}
            block.update({name: vector(size, 0.0) for name, size in sizes.items()})
        if arch == "qwen3":
            names = ("attn_q_norm.weight", "attn_k_norm.weight")
            block.update({name: vector(shape.head_dim, 1.0) for name in names})
        tensors.update({f"blk.{layer}.{name}": values for name, values in block.items()})
    tensors["output_norm.weight"] = vector(hidden, 1.0)
    return tensors


def encode(values: np.ndarray, number: GGMLQuantizationType) -> np.ndarray:
    """Quantise; types that the package can only read get random blocks with modest scales instead."""
    if not number.name.endswith("_K"):
        return quantize(values, number)
    return random_blocks(number, values.shape, seed=values.size)


def random_blocks(number: GGMLQuantizationType, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """The bytes [..., row bytes] uint8 of a tensor of that shape: random integers, half-precision scales near
    0.001."""
    elements, size = GGML_QUANT_SIZES[number]
    random = np.random.default_rng(seed)
    raw = random.integers(0, 256, (*shape[:-1], shape[-1] // elements, size), dtype=np.uint8)
    halves = {"Q6_K": (208,), "Q4_0": (0,), "Q5_0": (0,), "Q8_0": (0,)}.get(number.name, (0, 2))
    for start in halves:
        scales = random.uniform(0.0005, 0.0015, raw.shape[:-1]).astype("<f2")
        raw[..., start : start + 2] = scales[..., None].view(np.uint8)
    return raw.reshape(*shape[:-1], -1)


def add_metadata(writer: GGUFWriter, key: str, value: Any) -> None:
    """Add a value with the type that files commonly use for it."""
    if isinstance(value, (list, tuple)):
        writer.add_array(key, list(value))
    elif isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_key_value(key, value, GGUFValueType.INT32 if value < 0 else GGUFValueType.UINT32)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    else:
        writer.add_string(key, value)
