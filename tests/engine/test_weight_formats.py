"""What a start makes of the formats that weights may be kept in."""

from __future__ import annotations

import numpy as np
import pytest

from noria.config.asked import EngineOptions
from noria.config.errors import ConfigError
from noria.config.parse import from_mapping
from noria.config.resolved import Resolved
from noria.engine import build
from noria.engine.build import load_engine
from noria.engine.opening import open_model
from noria.kernels.select import ChosenBackend
from noria.models.names import name_map
from noria.models.registry import architecture
from noria.models.stored import StoredModel
from support_config import GIB, hardware
from support_models import MemoryFile, cached_checkpoint, small_config

# Shapes as Qwen3-1.7B has them: 1,720 M weights in matrices.
LARGE = small_config(
    architecture="qwen3",
    vocab_size=151936,
    hidden_size=2048,
    intermediate_size=6144,
    num_layers=28,
    num_heads=16,
    num_kv_heads=8,
    head_dim=128,
)


def large_model() -> StoredModel:
    """Headers only: no number of it takes memory."""
    names, shapes = name_map("gguf", LARGE), architecture(LARGE).shapes(LARGE)
    zero = np.float32(0)
    arrays = {names.file_name(name): np.broadcast_to(zero, shape) for name, shape in shapes.items()}
    return StoredModel(MemoryFile("gguf", LARGE, arrays))


def resolved(
    gigabytes: int, monkeypatch: pytest.MonkeyPatch, backend: str = "native", **asked: str
) -> Resolved:
    monkeypatch.setattr(build, "probe_cpu", lambda: hardware(total=int(gigabytes * GIB)))
    options = from_mapping(EngineOptions, asked)
    return build._resolved("m", options, ChosenBackend(backend, "for a test"), large_model())


def test_a_model_that_only_fits_rounded_is_refused_with_that_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"weights do not fit .*Would work: .*--quantization w8; or .*w4"):
        resolved(3, monkeypatch)
    assert resolved(3, monkeypatch, quantization="w8").memory.weights_bytes < 1.72e9 * 34 / 32 * 1.001
    with pytest.raises(ConfigError, match=r"Would work: --quantization w4; or"):
        resolved(2.2, monkeypatch)
    with pytest.raises(ConfigError, match=r"Would work: --quantization w4; or"):
        resolved(2.2, monkeypatch, quantization="w8")
    with_w4 = resolved(2.2, monkeypatch, quantization="w4")
    assert with_w4.memory.weights_bytes < (1.72e9 * 20 + 0.311e9 * 14) / 32 * 1.001


def test_the_torch_backend_is_advised_no_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError) as refused:
        resolved(6, monkeypatch, "torch")
    assert "--dtype bfloat16" in str(refused.value)
    assert "--quantization" not in str(refused.value)


@pytest.mark.parametrize("quantization", ["w8", "w4"])
def test_an_engine_of_rounded_weights_says_so(quantization: str) -> None:
    model = str(cached_checkpoint("llama", hidden_size=64, num_attention_heads=4, head_dim=16))
    asked = {"model": model, "max_model_len": 64, "quantization": quantization, "num_threads": 1}
    options = from_mapping(EngineOptions, asked)
    engine = load_engine(open_model(options.model), options, lambda settings: None)
    engine.runner.shutdown()
    (choice,) = [one for one in engine.resolved.choices if one.name == "quantization"]
    assert (choice.value, engine.resolved.config.quantization) == (quantization, quantization)
    assert (
        "14 of 16 matrices are rounded while they are loaded; 2 stay in 16 bits: their rows of 80"
        in choice.reason
    )


def test_rounding_is_refused_where_another_backend_is_asked_for() -> None:
    model = str(cached_checkpoint("llama"))
    options = from_mapping(EngineOptions, {"model": model, "quantization": "w8", "backend": "torch"})
    with pytest.raises(ConfigError, match=r"the torch backend cannot be used: it cannot round weights to w8"):
        load_engine(open_model(options.model), options, lambda settings: None)
