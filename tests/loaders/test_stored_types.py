"""Dequantisation, compared bit by bit with the reference implementation of the `gguf` package."""

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf.constants import GGML_QUANT_SIZES
from gguf.quants import dequantize
from hypothesis import given, settings
from hypothesis import strategies as st

from noria.loaders import gguf_types, stored_types
from noria.loaders.gguf_checkpoint import GgufCheckpoint
from noria.loaders.pull import DEFAULT_MODEL, pull
from support_gguf import random_blocks

QUANTISED = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"]
PLAIN = ["F32", "F16", "BF16"]


def bits(values: np.ndarray) -> np.ndarray:
    return values.reshape(-1).view(np.uint32)


def reference(raw: np.ndarray, kind: str) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.ascontiguousarray(dequantize(raw, GGMLQuantizationType[kind])).reshape(-1)


def ours(raw: np.ndarray, kind: str, num_elements: int) -> np.ndarray:
    with np.errstate(all="ignore"):
        return stored_types.dequantise(kind, raw.reshape(-1), num_elements)


@pytest.mark.parametrize("kind", PLAIN + QUANTISED)
@given(rows=st.integers(1, 7), blocks=st.integers(1, 5), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_any_bytes_give_the_reference_s_bits(kind, rows, blocks, seed):
    # Random bytes make every scale there is: subnormal, infinite and not a number included.
    elements, size = GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
    raw = np.random.default_rng(seed).integers(0, 256, (rows, blocks * size), dtype=np.uint8)
    expected = reference(raw, kind)
    found = ours(raw, kind, rows * blocks * elements)
    assert found.dtype == np.float32
    not_numbers = np.isnan(expected)
    assert np.array_equal(np.isnan(found), not_numbers)
    assert np.array_equal(bits(found)[~not_numbers], bits(expected)[~not_numbers])


@pytest.mark.parametrize("kind", QUANTISED)
@pytest.mark.parametrize("shape", [(1, 256), (3, 768), (1000, 512), (5, 3, 256)])
def test_usual_scales_give_the_reference_s_bits_over_several_chunks(kind, shape):
    raw = random_blocks(GGMLQuantizationType[kind], shape, seed=7)
    found = ours(raw, kind, int(np.prod(shape)))
    assert np.isfinite(found).all()
    assert np.array_equal(bits(found), bits(reference(raw, kind)))


def test_every_supported_type_has_the_reference_s_number_and_block_size():
    for number, kind in gguf_types.SUPPORTED.items():
        known = GGMLQuantizationType(number)
        assert (known.name, *GGML_QUANT_SIZES[known]) == (kind.name, kind.block_elements, kind.block_bytes)
    assert {kind.name for kind in gguf_types.SUPPORTED.values()} == set(PLAIN + QUANTISED)


@pytest.mark.parametrize("kind", ["F32", "Q8_0"])
def test_the_result_is_fresh_and_writable_where_the_bytes_are_not(kind):
    raw = random_blocks(GGMLQuantizationType["Q8_0"], (1, 128), seed=1).reshape(-1)
    raw.flags.writeable = False
    found = ours(raw, kind, 34 if kind == "F32" else 128)
    found[:] = 1.0
    assert not np.shares_memory(found, raw)


def test_every_tensor_of_a_real_model_gives_the_reference_s_bits():
    checkpoint = GgufCheckpoint(pull(DEFAULT_MODEL, lambda stage, done, total: None))
    assert len(checkpoint.tensors) == 272
    for name, info in checkpoint.tensors.items():
        raw = checkpoint.read_raw(name).reshape(*info.shape[:-1], -1)
        found = checkpoint.read(name)
        assert found.shape == info.shape
        assert np.array_equal(bits(found), bits(reference(raw, info.kind))), name
