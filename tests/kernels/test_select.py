from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from noria.config.errors import ConfigError
from noria.kernels import select
from noria.kernels.native import support
from noria.kernels.ops import BackendOptions, CacheShape
from noria.kernels.select import ChosenBackend, Wanted, choose_backend, load_backend, settle_level

CACHE = CacheShape(num_layers=1, num_kv_heads=1, head_dim=4, block_size=4, num_blocks=1)
WANTED = Wanted(dtype="float32", head_dim=64, block_size=16)


def test_importing_the_rooms_imports_no_torch() -> None:
    code = (
        "import sys, noria.kernels.select, noria.models.build, noria.models.footprint;"
        "print([name for name in sys.modules if name.split('.')[0] == 'torch'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_auto_takes_native_and_a_name_takes_what_it_says() -> None:
    assert choose_backend("auto", WANTED) == ChosenBackend("native", "the first that serves the model here")
    for name in ("torch", "native"):
        assert choose_backend(name, WANTED) == ChosenBackend(name, "asked for")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"dtype": "int8"}, "it does not store int8, only float32, bfloat16, float16"),
        ({"head_dim": 10}, "the model's head_dim is 10, no multiple of 8"),
        ({"block_size": 4}, "block_size is 4, no multiple of 8"),
    ],
)
def test_the_native_backend_refuses_a_model_with_the_reason(change: dict[str, object], reason: str) -> None:
    wanted = replace(WANTED, **change)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=f"the native backend cannot be used: {reason}"):
        choose_backend("native", wanted)
    chosen = choose_backend("auto", wanted)
    assert (chosen.name, chosen.is_fallback) == ("torch", True)


@pytest.mark.parametrize("flag", ["avx2", "fma", "f16c"])
def test_a_cpu_without_its_instructions_is_refused(monkeypatch: pytest.MonkeyPatch, flag: str) -> None:
    monkeypatch.setattr(support, "cpu_flags", lambda: frozenset({"avx2", "fma", "f16c"} - {flag}))
    with pytest.raises(ConfigError, match=f"this CPU lacks {flag}"):
        choose_backend("native", WANTED)


def test_where_it_was_not_built_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="its library was not built when noria was installed"):
        choose_backend("native", WANTED)


def test_without_torch_native_serves_or_the_error_says_why_neither_can(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(select, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"the torch backend cannot be used: torch is not installed"):
        choose_backend("torch", WANTED)
    assert choose_backend("auto", WANTED).name == "native"
    with pytest.raises(
        ConfigError, match=r"no backend can run .* native: it does not .*; torch: torch is not"
    ):
        choose_backend("auto", replace(WANTED, dtype="int8"))


@pytest.mark.parametrize("quantization", ["w8", "w4"])
def test_only_the_native_backend_rounds_weights(quantization: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = replace(WANTED, quantization=quantization)
    assert choose_backend("auto", wanted).name == "native"
    why = rf"it cannot round weights to {quantization} \(quantization\)"
    with pytest.raises(ConfigError, match=f"the torch backend cannot be used: {why}"):
        choose_backend("torch", wanted)
    with pytest.raises(ConfigError, match=f"cannot round weights to {quantization}"):
        load_backend("torch")(BackendOptions("float32", "cpu", 1, CACHE, quantization))
    monkeypatch.setattr(support, "cpu_flags", frozenset)
    with pytest.raises(ConfigError, match=f"no backend can run .* native: this CPU lacks .*; torch: {why}"):
        choose_backend("auto", wanted)


def test_only_the_native_backend_has_instruction_set_levels() -> None:
    assert settle_level("torch", "auto") is None
    with pytest.raises(
        ConfigError, match="isa is 'avx2': only the native backend has levels, and the model runs on"
    ):
        settle_level("torch", "avx2")


def test_an_unknown_dtype_is_refused_with_those_supported() -> None:
    options = BackendOptions("int3", "cpu", 1, CACHE)
    with pytest.raises(ConfigError, match="'int3' is not supported; supported: float32, bfloat16, float16"):
        load_backend("torch")(options)


@pytest.mark.parametrize(
    ("cpuinfo", "flags"),
    [
        ("processor : 0\nflags\t\t: fpu avx2 fma\nflags\t\t: other\n", {"fpu", "avx2", "fma"}),
        ("processor : 0\nFeatures : asimd\n", set()),
        ("", set()),
    ],
)
def test_the_flags_are_those_of_the_first_cpu(tmp_path: Path, cpuinfo: str, flags: set[str]) -> None:
    (tmp_path / "cpuinfo").write_text(cpuinfo)
    assert support.cpu_flags(tmp_path / "cpuinfo") == flags
    assert support.cpu_flags(tmp_path / "nothing") == frozenset()


def test_a_kv_cache_in_int8_is_refused_by_torch_with_what_would_work() -> None:
    with pytest.raises(
        ConfigError, match=r"no KV cache in int8 .kv_cache_dtype.; float16 takes twice as much"
    ):
        choose_backend("torch", replace(WANTED, kv_dtype="int8"))
