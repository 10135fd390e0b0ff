"""Small real models: written to disk in Hugging Face form with transformers, or held in memory with random weights.

`write_checkpoint` makes a directory that every part of the program can serve; `cached_checkpoint` does so once a
session. `random_model` needs neither transformers nor a disk and is much quicker to make.
"""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from noria.config.model import ModelConfig, RopeConfig
from noria.kernels.ops import BackendOptions
from noria.kernels.select import load_backend
from noria.models.build import BuiltModel, build_model, cache_shape
from noria.models.names import name_map
from noria.models.registry import architecture as architecture_of
from noria.models.stored import ModelFile, StoredModel

VOCAB_SIZE = 320
SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
EOS_TOKEN_ID = 2
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_SENTENCES = (
    "The water wheel turns, and its buckets fill and empty while it turns.",
    "A request that is finished leaves the batch, and a waiting one takes its place.",
    "Count from one to ten: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10.",
    "Grüße aus Köln, där vattnet rinner, 水が流れる, 🙂 and so on.",
)
_SHAPE: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "bos_token_id": 0,
    "eos_token_id": EOS_TOKEN_ID,
}
_DEFAULTS: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {"sliding_window": None},
    "qwen2": {},
    "qwen3": {"head_dim": 16},
}


def hf_config(architecture: str, **overrides: Any) -> Any:
    """A small transformers configuration. overrides: keys of config.json."""
    import transformers

    made = transformers.AutoConfig.for_model(
        architecture, **{**_SHAPE, **_DEFAULTS[architecture], **overrides}
    )
    made.architectures = [
        {"qwen2": "Qwen2", "qwen3": "Qwen3"}.get(architecture, architecture.title()) + "ForCausalLM"
    ]
    return made


def hf_model(config: Any, seed: int = 0) -> Any:
    """A transformers model with random float32 weights of a scale that keeps activations near 1."""
    import torch
    import transformers

    model = transformers.AutoModelForCausalLM.from_config(
        config, attn_implementation="eager", dtype=torch.float32
    )
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.ndim == 2:
                parameter.copy_(noise * (1.0 if "embed" in name else 1.5 / parameter.shape[1] ** 0.5))
            else:
                parameter.copy_(noise * 0.3 + (0.0 if name.endswith("bias") else 1.0))
    return model.eval()


def write_checkpoint(directory: Path, architecture: str, num_shards: int = 1, **overrides: Any) -> Any:
    """A servable model directory: config.json, safetensors in num_shards files or so, a tokenizer with a chat
    template. overrides: keys of config.json. Returns the transformers model whose weights it holds."""
    model = hf_model(hf_config(architecture, **overrides))
    num_bytes = sum(parameter.numel() * 4 for parameter in model.parameters())
    model.save_pretrained(directory, max_shard_size=num_bytes // num_shards + 1)
    write_tokenizer(directory)
    return model


def write_tokenizer(directory: Path) -> None:
    """tokenizer.json and tokenizer_config.json: byte-level BPE of VOCAB_SIZE tokens, ChatML template."""
    (directory / "tokenizer.json").write_text(_tokenizer_json(), encoding="utf-8")
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": SPECIAL_TOKENS[0],
        "eos_token": SPECIAL_TOKENS[EOS_TOKEN_ID],
        "chat_template": CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False,
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")


@lru_cache(maxsize=1)
def _tokenizer_json() -> str:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_SENTENCES * 4, trainer)
    return tokenizer.to_str()


def cached_checkpoint(architecture: str, num_shards: int = 1, **overrides: Any) -> Path:
    """As write_checkpoint, in a directory that lives as long as the test session and is not to be changed."""
    return _cached(architecture, num_shards, json.dumps(overrides, sort_keys=True))


@lru_cache(maxsize=64)
def _cached(architecture: str, num_shards: int, overrides: str) -> Path:
    directory = Path(tempfile.mkdtemp(prefix="noria-model-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    write_checkpoint(directory, architecture, num_shards, **json.loads(overrides))
    return directory


class Stored:
    """What a file's header says of a tensor."""

    def __init__(self, array: np.ndarray) -> None:
        self.shape = array.shape
        self.num_bytes = array.nbytes
        self.kind = "F32"


class MemoryFile:
    """A models.stored.ModelFile. Notes the names read, in order."""

    def __init__(self, file_format: str, config: ModelConfig, arrays: Mapping[str, np.ndarray]) -> None:
        self.format = file_format
        self.path = "memory"
        self.config = config
        self.arrays = dict(arrays)
        self.reads: list[str] = []

    @property
    def tensors(self) -> dict[str, Stored]:
        return {name: Stored(array) for name, array in self.arrays.items()}

    def read(self, name: str) -> np.ndarray:
        self.reads.append(name)
        return self.arrays[name].copy()

    def read_raw(self, name: str, start: int = 0, end: int | None = None) -> np.ndarray:
        self.reads.append(name)
        return self.arrays[name].reshape(-1).view(np.uint8)[start:end]


def random_file(config: ModelConfig, file_format: str = "safetensors", seed: int = 0) -> MemoryFile:
    """Random weights for a configuration, of a scale that keeps activations near 1."""
    rng, names = np.random.default_rng(seed), name_map(file_format, config)
    arrays = {}
    for name, shape in architecture_of(config).shapes(config).items():
        noise = rng.standard_normal(shape, dtype=np.float32)
        if len(shape) == 2:
            array = noise if name == "embedding" else noise * np.float32(1.5 / shape[1] ** 0.5)
        else:
            array = noise * np.float32(0.3) + np.float32(0.0 if name.endswith("bias") else 1.0)
        arrays[names.file_name(name)] = array
    return MemoryFile(file_format, config, arrays)


def small_config(**overrides: Any) -> ModelConfig:
    shape: dict[str, Any] = {
        "architecture": "llama",
        "vocab_size": 97,
        "hidden_size": 48,
        "intermediate_size": 80,
        "num_layers": 2,
        "num_heads": 6,
        "num_kv_heads": 2,
        "head_dim": 8,
        "max_position": 2048,
        "norm_eps": 1e-5,
        "rope": RopeConfig(),
        "tie_word_embeddings": True,
    }
    return ModelConfig(**{**shape, **overrides})


def load(
    file: ModelFile,
    block_size: int,
    num_blocks: int,
    *,
    dtype: str = "float32",
    kv_dtype: str | None = None,
    num_threads: int = 1,
    max_model_len: int | None = None,
    backend_name: str = "torch",
    quantization: str = "none",
) -> BuiltModel:
    """The file's model on a backend."""
    shape = cache_shape(file.config, block_size, num_blocks)
    backend = load_backend(backend_name)(
        BackendOptions(dtype, "cpu", num_threads, shape, quantization, kv_dtype)
    )
    return build_model(StoredModel(file), backend, max_model_len or file.config.max_position)


def random_model(config: ModelConfig, block_size: int, num_blocks: int, **options: Any) -> BuiltModel:
    """options: as `load` has them."""
    return load(random_file(config), block_size, num_blocks, **options)
