"""The embedded model on a fixed text of our own: what tests of accuracy compare."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from noria.kernels.ops import BackendOptions, Matrix
from noria.kernels.select import load_backend
from noria.models.build import cache_shape
from noria.models.registry import architecture
from noria.models.rope import rope_table
from noria.models.stored import StoredModel
from support_batches import Driver

TEXT = (Path(__file__).parent / "two_thousand_tokens.txt").read_text(encoding="utf-8")
NUM_TOKENS = 2000
NUM_CHUNK = 200  # tokens at a time: the logits of a whole text are large


@dataclass(frozen=True)
class Widened:
    """A matrix that says it is stored in float32."""

    matrix: Matrix
    kind: str = "F32"
    where: str = "widened"

    @property
    def shape(self) -> tuple[int, int]:
        return self.matrix.shape

    def floats(self) -> np.ndarray:
        return self.matrix.floats()

    def pieces(self) -> Iterator[np.ndarray]:
        yield self.floats().view(np.uint8)


class WidenedModel:
    """A models.parts.TensorReader of the same numbers, none quantised."""

    def __init__(self, stored: StoredModel) -> None:
        self._stored = stored

    def matrix(self, name: str) -> Widened:
        return Widened(self._stored.matrix(name))

    def vector(self, name: str) -> np.ndarray:
        return self._stored.vector(name)


class Runs:
    def __init__(self, program: Any) -> None:
        self.forward = program.run


class Reading:
    """A model on its way through the text."""

    def __init__(
        self,
        reader: Any,
        stored: StoredModel,
        token_ids: list[int],
        *,
        quantization: str = "none",
        kv_dtype: str = "float32",
    ) -> None:
        num_blocks = -(-len(token_ids) // 16)
        shape = cache_shape(stored.config, 16, num_blocks)
        options = BackendOptions("float32", "cpu", 2, shape, quantization, kv_dtype)
        backend = load_backend("native")(options)
        rope = backend.packer.pack_table(rope_table(stored.config, len(token_ids)))
        model = architecture(stored.config)(stored.config, reader, backend.packer, rope)
        self._runs = Runs(backend.compile(model.forward))
        self._driver = Driver(self._runs, 16, num_blocks)
        self._sequence = self._driver.add(token_ids)

    def next(self, num_tokens: int) -> np.ndarray:
        """The log-probabilities [n, V] float64 of what follows each of the next n tokens."""
        logits = self._driver.advance(self._sequence, num_tokens).astype(np.float64)
        logits -= logits.max(-1, keepdims=True)
        return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


class Comparison:
    """Of one model with the exact one over the same tokens, gathered chunk by chunk."""

    def __init__(self) -> None:
        self._divergences: list[np.ndarray] = []
        self._agreed: list[np.ndarray] = []
        self._surprises: list[np.ndarray] = []

    def add(self, found: np.ndarray, exact: np.ndarray, followers: list[int]) -> None:
        """Log-probabilities [n, V] of both, and the n tokens that follow; n - 1 at the text's end."""
        self._divergences.append((np.exp(exact) * (exact - found)).sum(-1))
        self._agreed.append(found.argmax(-1) == exact.argmax(-1))
        at = (np.arange(len(followers)), followers)
        self._surprises.append(np.stack([-found[at], -exact[at]]))

    @property
    def num_tokens(self) -> int:
        return sum(map(len, self._agreed))

    @property
    def divergence(self) -> float:
        """Mean KL in nats a token."""
        return float(np.concatenate(self._divergences).mean())

    @property
    def agreement(self) -> float:
        """Share of the tokens whose likeliest successor is the same."""
        return float(np.concatenate(self._agreed).mean())

    @property
    def perplexity_ratio(self) -> float:
        found, exact = np.concatenate(self._surprises, axis=1).mean(-1)
        return float(np.exp(found - exact))

    def __str__(self) -> str:
        return (
            f"over {self.num_tokens} tokens: KL {self.divergence:.5f} nats a token, the same first choice at "
            f"{self.agreement:.1%}, perplexity times {self.perplexity_ratio:.5f}"
        )


@dataclass(frozen=True)
class Bfloat16:
    """A matrix stored in bfloat16. bits: [N, K] uint16"""

    bits: np.ndarray
    kind: str = "BF16"
    where: str = "shuffled"

    @property
    def shape(self) -> tuple[int, int]:
        num_rows, width = self.bits.shape
        return num_rows, width

    def floats(self) -> np.ndarray:
        return (self.bits.astype(np.uint32) << 16).view(np.float32)

    def pieces(self) -> Iterator[np.ndarray]:
        yield self.bits.view(np.uint8)


class ShuffledModel:
    """A models.parts.TensorReader of a model in bfloat16 whose channels come in another order.

    The order of the channels between layers means nothing, so the model is the same but for rounding. What was
    quantised in groups once is no longer so in the new groups: to quantise it is as hard as it was before.
    """

    def __init__(self, stored: StoredModel, seed: int = 0) -> None:
        self._stored = stored
        self._config = stored.config
        rng = np.random.default_rng(seed)
        self._hidden = rng.permutation(self._config.hidden_size)
        self._inner = rng.permutation(self._config.intermediate_size)
        self._within_head = rng.permutation(self._config.head_dim)
        self._matrices: dict[str, Bfloat16] = {}

    def matrix(self, name: str) -> Bfloat16:
        if name not in self._matrices:
            rows, columns = self._orders(name)
            exact = np.ascontiguousarray(self._stored.matrix(name).floats()[:, columns])
            bits = exact[rows].view(np.uint32)
            rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
            self._matrices[name] = Bfloat16(rounded.astype(np.uint16))
        return self._matrices[name]

    def vector(self, name: str) -> np.ndarray:
        return self._stored.vector(name)[self._hidden]

    def _orders(self, name: str) -> tuple[Any, Any]:
        """In which the rows and the columns of a matrix come."""
        config, hidden, as_is = self._config, self._hidden, slice(None)
        part = name.split(".")[2] if name.startswith("layers.") else name
        if part == "o":
            return hidden, self._heads(config.num_heads)
        if part == "down":
            return hidden, self._inner
        return {"v": self._heads(config.num_kv_heads), "gate": self._inner, "up": self._inner}.get(
            part, as_is
        ), hidden

    def _heads(self, num_heads: int) -> np.ndarray:
        starts = np.arange(num_heads)[:, None] * self._config.head_dim
        return (starts + self._within_head).reshape(-1)
