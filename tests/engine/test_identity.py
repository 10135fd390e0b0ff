"""Whatever changes the KV of the same tokens is in the key of the prefix cache."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from noria.config.engine import CacheConfig, EngineConfig, SchedulerConfig
from noria.config.model import ModelConfig
from noria.config.resolved import Choice
from noria.engine.identity import kv_identity
from noria.models.stored import StoredModel
from support_models import MemoryFile, random_file, small_config

FILE = random_file(small_config())
# What may differ without one bit of KV: the rest has to be in the key.
SHAPES_NOTHING = {
    "model_name",
    "num_threads",
    "seed",
    "queue",
    "kv_identity",
    "scheduler",
    "cache",
    "rule_time_limit_s",
}
OTHERS: dict[str, Any] = {"dtype": "bfloat16", "device": "cuda", "quantization": "w8"}


CONFIG = EngineConfig(
    model=FILE.config,
    model_name="one",
    scheduler=SchedulerConfig(64, 4, 128),
    cache=CacheConfig(16, 8),
    dtype="float32",
    device="cpu",
    num_threads=1,
    seed=0,
)
NATIVE, AVX2 = Choice("backend", "native", "it can"), Choice("isa", "avx2", "the best here")


def identity(file: MemoryFile = FILE, choices: tuple[Choice, ...] = (NATIVE, AVX2), **settings: Any) -> str:
    return kv_identity(StoredModel(file).fingerprint(), replace(CONFIG, **settings), choices)


def test_the_same_weights_computed_alike_are_the_same_however_they_are_called() -> None:
    settings = {"model_name": "two", "num_threads": 7, "seed": 3, "cache": CacheConfig(16, 99)}
    assert identity(random_file(small_config()), **settings) == identity()


@pytest.mark.parametrize("name", sorted(FILE.arrays))
def test_any_other_tensor_is_another_identity(name: str) -> None:
    arrays = {**FILE.arrays, name: FILE.arrays[name] + np.float32(0.001)}
    assert identity(MemoryFile(FILE.format, FILE.config, arrays)) != identity()


@pytest.mark.parametrize("field", [field.name for field in fields(ModelConfig)])
def test_any_other_setting_of_the_model_is_another_identity(field: str) -> None:
    # The file stays as it is: what is looked at is the setting alone.
    model = replace(FILE.config, **{field: "another"})
    assert identity(model=model) != identity()


@pytest.mark.parametrize("field", sorted({field.name for field in fields(EngineConfig)} - SHAPES_NOTHING))
def test_any_other_setting_that_shapes_kv_is_another_identity(field: str) -> None:
    value = replace(FILE.config, norm_eps=1e-3) if field == "model" else OTHERS[field]
    assert identity(**{field: value}) != identity()


def test_the_cache_s_number_format_the_longest_request_and_the_kernels_are_part_of_it() -> None:
    others = [
        identity(cache=CacheConfig(16, 8, dtype="int8")),
        identity(scheduler=SchedulerConfig(64, 4, 256)),
        identity(choices=(Choice("backend", "torch", "asked for"),)),
        identity(choices=(NATIVE, Choice("isa", "avx512_vnni", "the best here"))),
    ]
    assert len({identity(), *others}) == 5
