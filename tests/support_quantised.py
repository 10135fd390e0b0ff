"""Random models whose matrices are stored in GGUF's types."""

from __future__ import annotations

from functools import lru_cache

import gguf
import numpy as np

from noria.config.model import ModelConfig
from noria.loaders.stored_types import dequantise
from support_models import MemoryFile, Stored, random_file

QUANTISED_KINDS = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K")
_LEGACY = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0")
# Bytes of a block of 256 numbers, and which pairs of them are half precision scales.
_K_BLOCKS = {"Q4_K": (144, (0, 2)), "Q5_K": (176, (0, 2)), "Q6_K": (210, (208,))}


class StoredAs(Stored):
    def __init__(self, kind: str, shape: tuple[int, ...], raw: np.ndarray) -> None:
        self.kind = kind
        self.shape = shape
        self.num_bytes = raw.nbytes


class QuantisedFile(MemoryFile):
    """kinds: of the matrices by file name. arrays: what they stand for, in float32."""

    def __init__(self, whole: MemoryFile, kinds: dict[str, str]) -> None:
        super().__init__(whole.format, whole.config, whole.arrays)
        self._kinds = kinds
        self._raw = {name: quantise(kinds[name], whole.arrays[name]) for name in kinds}
        for name, raw in self._raw.items():
            array = whole.arrays[name]
            self.arrays[name] = dequantise(kinds[name], raw, array.size).reshape(array.shape)

    @property
    def tensors(self) -> dict[str, Stored]:
        quantised = {n: StoredAs(self._kinds[n], self.arrays[n].shape, raw) for n, raw in self._raw.items()}
        return {**super().tensors, **quantised}

    def read_raw(self, name: str, start: int = 0, end: int | None = None) -> np.ndarray:
        return self._raw[name][start:end] if name in self._raw else super().read_raw(name, start, end)


def quantised_file(
    config: ModelConfig, kind: str, file_format: str = "safetensors", kinds: dict[str, str] | None = None
) -> MemoryFile:
    """All matrices in one kind, or those whose names contain a key of `kinds` in another."""
    return _quantised_file(config, kind, file_format, tuple((kinds or {}).items()))


@lru_cache(maxsize=64)
def _quantised_file(
    config: ModelConfig, kind: str, file_format: str, kinds: tuple[tuple[str, str], ...]
) -> MemoryFile:
    whole = random_file(config, file_format)
    chosen = {name: kind for name, array in whole.arrays.items() if array.ndim == 2}
    for part, other in kinds:
        chosen.update({name: other for name in chosen if part in name})
    return QuantisedFile(whole, {name: one for name, one in chosen.items() if one != "F32"})


def quantise(kind: str, array: np.ndarray) -> np.ndarray:
    """[n, k] float32 -> its bytes. K types, which nobody here can make, are random ones of a like scale."""
    if kind == "BF16":
        return (array.reshape(-1).view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    if kind == "F16":
        return array.astype(np.float16).reshape(-1).view(np.uint8)
    if kind in _LEGACY:
        return gguf.quants.quantize(array, getattr(gguf.GGMLQuantizationType, kind)).reshape(-1)
    num_bytes, scales = _K_BLOCKS[kind]
    rng = np.random.default_rng(array.size)
    blocks = rng.integers(0, 256, (array.size // 256, num_bytes), dtype=np.uint8)
    for at in scales:
        blocks[:, at : at + 2] = np.array([array.std() / (1500 if kind == "Q6_K" else 500)], np.float16).view(
            np.uint8
        )
    if kind != "Q6_K":
        blocks[:, 2:4] = np.array([array.std() / 60], np.float16).view(np.uint8)
    return blocks.reshape(-1)
