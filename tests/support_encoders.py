"""Small encoders: with random weights in memory, on disk as transformers writes them, and in float64 numpy."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from noria.config.model import ClassifierConfig, EncoderConfig, ModelConfig, RopeConfig
from noria.models.build import BuiltModel
from noria.models.names import name_map
from noria.models.stored import ModelFile
from support_batches import Driver
from support_models import small_config
from support_reference import rounding

WORDS = (
    "the",
    "water",
    "wheel",
    "turns",
    "buckets",
    "fill",
    "and",
    "empty",
    "a",
    "batch",
    "##s",
    "##ing",
    ".",
    ",",
    "?",
)
VOCABULARY = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS)
CLS, SEP = 2, 3

_CLASSES = {
    "bert": ("Bert", {"pad_token_id": 0}),
    "roberta": ("Roberta", {"pad_token_id": 1, "type_vocab_size": 1, "max_position_embeddings": 602}),
    "xlm-roberta": ("XLMRoberta", {"pad_token_id": 1, "type_vocab_size": 1, "max_position_embeddings": 602}),
}
_SHAPE: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "max_position_embeddings": 600,
    "layer_norm_eps": 1e-6,
}


def small_encoder(num_labels: int = 0, **overrides: Any) -> ModelConfig:
    """overrides: of ModelConfig. The residual stream is `hidden_size` wide, num_heads * head_dim."""
    labels = tuple(f"LABEL_{index}" for index in range(num_labels))
    heads, dim = overrides.get("num_heads", 6), overrides.get("head_dim", 8)
    return small_config(
        **{
            "architecture": "bert_classifier" if labels else "bert",
            "num_kv_heads": heads,
            "hidden_size": heads * dim,
            "max_position": 600,
            "hidden_act": "gelu",
            "rope": RopeConfig(kind="none"),
            "tie_word_embeddings": False,
            "qkv_bias": True,
            "output_bias": True,
            "mlp_bias": True,
            "has_logits": False,
            "classifier": ClassifierConfig(labels, "softmax", "cls") if labels else None,
            "encoder": EncoderConfig(num_token_types=2, num_positions=600),
            **overrides,
        }
    )


def hf_encoder(kind: str, num_labels: int = 0, seed: int = 0, **overrides: Any) -> Any:
    """A transformers model with random float32 weights; with labels a classifier. kind: of _CLASSES."""
    import torch
    import transformers

    name, defaults = _CLASSES[kind]
    config = getattr(transformers, f"{name}Config")(**{**_SHAPE, **defaults, **overrides})
    if num_labels:
        config.num_labels = num_labels
    made = getattr(transformers, f"{name}{'ForSequenceClassification' if num_labels else 'Model'}")
    model = made._from_config(config, attn_implementation="eager", dtype=torch.float32)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for stored, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.ndim == 2:
                parameter.copy_(noise * (0.5 if "embedding" in stored else 1.0 / parameter.shape[1] ** 0.5))
            else:
                parameter.copy_(noise * 0.3 + (0.0 if stored.endswith("bias") else 1.0))
    return model.eval()


def write_encoder(directory: Path, kind: str, num_labels: int = 0, **overrides: Any) -> Any:
    """A servable directory, tokenizer included; -> the transformers model whose weights it holds."""
    model = hf_encoder(kind, num_labels, **overrides)
    model.save_pretrained(directory)
    write_word_tokenizer(directory)
    return model


def write_word_tokenizer(directory: Path) -> None:
    """WordPiece of VOCABULARY; as some makers leave it, told to cut and to fill up."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    made = Tokenizer(models.WordPiece({word: i for i, word in enumerate(VOCABULARY)}, unk_token="[UNK]"))
    made.add_special_tokens(list(VOCABULARY[:5]))
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", CLS), ("[SEP]", SEP)],
    )
    made.decoder = decoders.WordPiece()
    made.enable_truncation(16)
    made.enable_padding(length=16)
    made.save(str(directory / "tokenizer.json"))
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    (directory / "tokenizer_config.json").write_text(json.dumps(names), encoding="utf-8")


def one_step(
    model: BuiltModel, texts: Sequence[Sequence[int]], num_first: Sequence[int | None]
) -> list[np.ndarray]:
    """Hidden states of each text, all in one step. num_first: tokens of type 0; None: all."""
    driver = Driver(model, 16, sum(-(-len(text) // 16) for text in texts))
    shares = [(driver.add(text, first), len(text)) for text, first in zip(texts, num_first, strict=True)]
    batch = replace(driver.batch(shares), logit_rows=np.zeros(0, np.int32))
    return np.split(model.forward(batch).hidden, batch.query_starts[1:-1])


def reference_hidden(
    file: ModelFile, token_ids: Sequence[int], num_first: int | None = None, dtype: str = "float32"
) -> np.ndarray:
    """Hidden states [T, H] of a text or pair in float64, matrices and KV stored in dtype.

    num_first: tokens of type 0; None: all.
    """
    return _Reference(file, dtype).hidden(list(token_ids), len(token_ids) if num_first is None else num_first)


class _Reference:
    def __init__(self, file: ModelFile, dtype: str) -> None:
        self.config = file.config
        self._stored = rounding(dtype)
        self._file, self._names = file, name_map(file.format, file.config)

    def hidden(self, token_ids: list[int], num_first: int) -> np.ndarray:
        encoder = self.config.encoder
        assert encoder is not None
        types = [0] * num_first + [1] * (len(token_ids) - num_first)
        x = self._weight("embedding")[token_ids] + self._vector("token_types")[types]
        x = x + self._vector("positions")[encoder.position_offset :][: len(token_ids)]
        x = self._norm("embedding_norm", x)
        for layer in range(self.config.num_layers):
            prefix = f"layers.{layer}."
            x = self._norm(prefix + "attention_norm", x + self._attention(prefix, x))
            up = activation(self.config.hidden_act, self._linear(prefix + "up", x))
            x = self._norm(prefix + "mlp_norm", x + self._linear(prefix + "down", up))
        return x

    def _attention(self, prefix: str, x: np.ndarray) -> np.ndarray:
        shape = (len(x), self.config.num_heads, self.config.head_dim)
        q, k, v = (self._linear(prefix + part, x).reshape(shape) for part in "qkv")
        k, v = self._stored(k), self._stored(v)
        scores = np.einsum("thd,shd->hts", q, k) / np.sqrt(self.config.head_dim)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = np.einsum("hts,shd->thd", weights / weights.sum(-1, keepdims=True), v)
        return self._linear(prefix + "o", mixed.reshape(len(x), -1))

    def _norm(self, name: str, x: np.ndarray) -> np.ndarray:
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + self.config.norm_eps)
        return scaled * self._vector(f"{name}.weight") + self._vector(f"{name}.bias")

    def _linear(self, name: str, x: np.ndarray) -> np.ndarray:
        return x @ self._weight(f"{name}.weight").T + self._vector(f"{name}.bias")

    def _weight(self, name: str) -> np.ndarray:
        return self._stored(self._vector(name))

    def _vector(self, name: str) -> np.ndarray:
        return self._file.read(self._names.file_name(name)).astype(np.float64)


def activation(name: str, x: np.ndarray) -> np.ndarray:
    """In float64."""
    if name == "relu":
        return np.maximum(x, 0)
    if name == "silu":
        return x / (1 + np.exp(-x))
    if name == "gelu":
        return x / 2 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))
    return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
