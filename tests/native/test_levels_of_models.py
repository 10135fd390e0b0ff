"""A model's logits are the same bits at every instruction set level of the native backend."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from noria.config.model import ModelConfig
from noria.kernels.native import _native
from support_batches import Driver
from support_models import load, small_config
from support_quantised import quantised_file

KV_DTYPES = ("float32", "float16", "bfloat16", "int8")


@pytest.fixture(autouse=True)
def level_afterwards() -> Iterator[None]:
    before = _native.isa()
    yield
    _native.use_isa(before)


@pytest.mark.parametrize("kv_dtype", KV_DTYPES)
@pytest.mark.parametrize(
    ("group", "head_dim", "kind"),
    [(1, 8, "F32"), (3, 24, "BF16"), (4, 64, "Q4_1"), (8, 72, "Q4_0"), (7, 80, "Q8_0"), (2, 120, "Q5_0")],
)
def test_logits_are_the_same_bits_at_every_level(group: int, head_dim: int, kind: str, kv_dtype: str) -> None:
    config = small_config(
        num_heads=2 * group,
        num_kv_heads=2,
        head_dim=head_dim,
        hidden_size=256,
        intermediate_size=256,
        windows=(30, 0),
    )
    found = [logits_at(name, config, kind, kv_dtype) for name in _native.levels()]
    assert len(found) >= 4 and np.isfinite(found[0]).all()
    for name, logits in zip(_native.levels(), found, strict=True):
        assert np.array_equal(logits.view(np.int32), found[0].view(np.int32)), name


def logits_at(level: str, config: ModelConfig, kind: str, kv_dtype: str) -> np.ndarray:
    """Of prompts in whole, of one behind another's context, and of decodes, in one batch and then alone."""
    _native.use_isa(level)
    model = load(
        quantised_file(config, kind), 16, 40, backend_name="native", kv_dtype=kv_dtype, num_threads=2
    )
    driver = Driver(model, 16, 40, 3)
    rng = np.random.default_rng(5)
    sequences = [driver.add(rng.integers(0, 97, length).tolist()) for length in (290, 41, 17, 1)]
    driver.step([(sequences[0], 260), (sequences[1], 33), (sequences[2], 16)])
    for chunks in ([(sequences[0], 27), (sequences[1], 7)], [(sequences[0], 1)]):
        driver.step(chunks)
    driver.run_mixed(longest_chunk=9)
    return np.concatenate([driver.logits(sequence) for sequence in sequences])
