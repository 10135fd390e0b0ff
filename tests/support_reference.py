"""A decoder in float64 numpy, one token after another, as plainly as it can be written: the oracle for backends."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from noria.config.model import ModelConfig
from noria.models.names import name_map
from noria.models.rope import rope_frequencies
from noria.models.stored import ModelFile

Rounding = Callable[[np.ndarray], np.ndarray]


def rounding(dtype: str) -> Rounding:
    """What storing in a dtype does to numbers."""
    kind = getattr(torch, dtype)
    return lambda array: torch.from_numpy(np.asarray(array, np.float32)).to(kind).double().numpy()


def reference_logits(file: ModelFile, token_ids: list[int], dtype: str = "float32") -> np.ndarray:
    """Logits of all positions, weights and KV stored in dtype, everything computed in float64."""
    return _Reference(file, rounding(dtype)).logits(token_ids)


def reference_hidden(file: ModelFile, token_ids: list[int], dtype: str = "float32") -> np.ndarray:
    """Hidden states of all positions after the last norm, as reference_logits computes them."""
    return _Reference(file, rounding(dtype)).hidden(token_ids)


class _Reference:
    def __init__(self, file: ModelFile, stored: Rounding) -> None:
        self.config: ModelConfig = file.config
        self._stored = stored
        self._file, self._names = file, name_map(file.format, file.config)

    def hidden(self, token_ids: list[int]) -> np.ndarray:
        x = self._weight("embedding")[token_ids]
        for layer in range(self.config.num_layers):
            x = x + self._attention(layer, x)
            x = x + self._mlp(layer, x)
        return self._norm("norm", x)

    def logits(self, token_ids: list[int]) -> np.ndarray:
        head = "embedding" if self.config.tie_word_embeddings else "head"
        return self.hidden(token_ids) @ self._weight(head).T

    def _attention(self, layer: int, x: np.ndarray) -> np.ndarray:
        config, prefix = self.config, f"layers.{layer}."
        x = self._norm(prefix + "input_norm", x)
        q, k, v = (self._linear(prefix + part, x, config.qkv_bias) for part in "qkv")
        q, k, v = (part.reshape(len(x), -1, config.head_dim) for part in (q, k, v))
        if config.architecture == "qwen3":
            q, k = self._norm(prefix + "q_norm", q), self._norm(prefix + "k_norm", k)
        q, k = self._rotated(q), self._stored(self._rotated(k))
        v, group = self._stored(v), config.num_heads // config.num_kv_heads
        out = np.zeros_like(q)
        for token in range(len(x)):
            window = config.window(layer)
            seen = slice(max(0, token - window + 1) if window else 0, token + 1)
            for head in range(config.num_heads):
                scores = k[seen, head // group] @ q[token, head] / np.sqrt(config.head_dim)
                weights = np.exp(scores - scores.max())
                out[token, head] = weights @ v[seen, head // group] / weights.sum()
        return self._linear(prefix + "o", out.reshape(len(x), -1), config.output_bias)

    def _mlp(self, layer: int, x: np.ndarray) -> np.ndarray:
        prefix, bias = f"layers.{layer}.", self.config.mlp_bias
        x = self._norm(prefix + "mlp_norm", x)
        gate, up = (self._linear(prefix + part, x, bias) for part in ("gate", "up"))
        return self._linear(prefix + "down", gate / (1 + np.exp(-gate)) * up, bias)

    def _rotated(self, heads: np.ndarray) -> np.ndarray:
        frequencies, scale = rope_frequencies(self.config, self.config.max_position)
        angles = (np.arange(len(heads), dtype=np.float32)[:, None] * frequencies).astype(np.float64)[:, None]
        half = len(frequencies)
        low, high, rest = heads[..., :half], heads[..., half : 2 * half], heads[..., 2 * half :]
        cos, sin = np.cos(angles) * scale, np.sin(angles) * scale
        return np.concatenate([low * cos - high * sin, high * cos + low * sin, rest], -1)

    def _norm(self, name: str, x: np.ndarray) -> np.ndarray:
        mean = (x * x).mean(-1, keepdims=True)
        return x / np.sqrt(mean + self.config.norm_eps) * self._vector(name)

    def _linear(self, name: str, x: np.ndarray, has_bias: bool) -> np.ndarray:
        y = x @ self._weight(f"{name}.weight").T
        return y + self._vector(f"{name}.bias") if has_bias else y

    def _weight(self, name: str) -> np.ndarray:
        return self._stored(self._vector(name))

    def _vector(self, name: str) -> np.ndarray:
        return self._names.restore(name, self._file.read(self._names.file_name(name))).astype(np.float64)
