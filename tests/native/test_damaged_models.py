"""A file with bytes changed, all the way: it is refused with a reason, or it is a model that runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noria.config.errors import ConfigError, ModelError
from noria.inspecting.traces import one_sequence
from noria.kernels.ops import BackendOptions
from noria.kernels.select import load_backend
from noria.loaders.gguf_checkpoint import GgufCheckpoint
from noria.loaders.gguf_file import read_gguf
from noria.models.build import build_model, cache_shape
from noria.models.stored import StoredModel
from support_gguf import MINUTE_TOKENS, TinyShape, write_tiny_gguf

SHAPE = TinyShape(
    hidden_size=32, intermediate_size=32, num_layers=1, num_heads=2, num_kv_heads=1, head_dim=16
)
KINDS = ("F32", "BF16", "F16", "Q8_0", "Q4_1", "Q5_0")


@pytest.fixture(scope="module")
def wholes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[bytes, int]]:
    """By kind: a file's bytes, and where its tensors begin."""
    found = {}
    for kind in KINDS:
        path = tmp_path_factory.mktemp("whole") / f"{kind}.gguf"
        write_tiny_gguf(path, shape=SHAPE, kind=kind, tokens=MINUTE_TOKENS)
        found[kind] = path.read_bytes(), min(one.offset for one in read_gguf(path).tensors.values())
    return found


def logits(path: Path) -> np.ndarray:
    with np.errstate(all="ignore"):
        stored = StoredModel(GgufCheckpoint(path))
        shape = cache_shape(stored.config, 16, 2)
        model = build_model(stored, load_backend("native")(BackendOptions("float32", "cpu", 2, shape)), 32)
    return model.forward(one_sequence([0, 1, 2], 16)).logits


@given(data=st.data(), kind=st.sampled_from(KINDS))
@settings(max_examples=300, deadline=None)
def test_changed_bytes_are_refused_or_make_a_model_that_runs(
    tmp_path_factory: pytest.TempPathFactory,
    wholes: dict[str, tuple[bytes, int]],
    data: st.DataObject,
    kind: str,
) -> None:
    content, start = wholes[kind]
    damaged = bytearray(content)
    place = st.integers(0, start - 1) | st.integers(start, len(content) - 1)
    for _ in range(data.draw(st.integers(0, 3))):
        damaged[data.draw(place)] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]) | st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "damaged-model.gguf"
    path.write_bytes(damaged)
    try:
        found = logits(path)
    except (ModelError, ConfigError) as error:
        assert str(error)
        return
    assert found.shape == (3, len(MINUTE_TOKENS))
