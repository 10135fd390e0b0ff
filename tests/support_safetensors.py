"""Writes small Hugging Face model directories with safetensors weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from support_gguf import MERGES, SPECIAL_TOKENS, byte_level_tokens

TINY_CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": len(byte_level_tokens()),
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def write_tiny_directory(
    directory: Path,
    config: Mapping[str, Any] | None = None,
    files: Mapping[str, Any] | None = None,
    tensors: Mapping[str, np.ndarray] | None = None,
) -> None:
    """config: replaces keys of TINY_CONFIG; None leaves the key out. files: more files, by name: text as it
    is, anything else as JSON; None leaves the file out. tensors: float32, by name."""
    directory.mkdir(parents=True, exist_ok=True)
    merged = {key: value for key, value in {**TINY_CONFIG, **(config or {})}.items() if value is not None}
    contents = {"config.json": merged, "tokenizer.json": tokenizer_json(), **(files or {})}
    for name, content in contents.items():
        if content is not None:
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    values = tiny_tensors() if tensors is None else tensors
    write_safetensors(
        directory / "model.safetensors", {name: ("F32", array) for name, array in values.items()}
    )


def tokenizer_json() -> dict[str, Any]:
    """A byte-level BPE tokenizer over the same vocabulary as support_gguf's."""
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": token_id,
                "content": text,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for token_id, text in enumerate(SPECIAL_TOKENS)
        ],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": True,
            "use_regex": True,
        },
        "post_processor": None,
        "decoder": {
            "type": "ByteLevel",
            "add_prefix_space": True,
            "trim_offsets": True,
            "use_regex": True,
        },
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {text: token_id for token_id, text in enumerate(byte_level_tokens())},
            "merges": list(MERGES),
        },
    }


def tiny_tensors() -> dict[str, np.ndarray]:
    """A few of a model's tensors: the loader neither knows nor checks which a model needs."""
    random = np.random.default_rng(0)
    return {
        "model.embed_tokens.weight": random.standard_normal((TINY_CONFIG["vocab_size"], 4), np.float32),
        "model.layers.0.self_attn.q_proj.weight": random.standard_normal((4, 4), np.float32),
        "model.norm.weight": random.standard_normal(4, np.float32),
    }


def write_safetensors(path: Path, tensors: Mapping[str, tuple[str, np.ndarray]]) -> None:
    """tensors: name -> (the dtype to state, the stored numbers)."""
    header, blobs, offset = {}, [], 0
    for name, (dtype, array) in tensors.items():
        blob = np.ascontiguousarray(array).tobytes()
        header[name] = {
            "dtype": dtype,
            "shape": list(array.shape),
            "data_offsets": [offset, offset + len(blob)],
        }
        blobs.append(blob)
        offset += len(blob)
    write_raw_safetensors(path, header, b"".join(blobs))


def write_raw_safetensors(path: Path, header: Any, body: bytes) -> None:
    """header: an object to be written as JSON, or the text itself."""
    text = (header if isinstance(header, str) else json.dumps(header)).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)
