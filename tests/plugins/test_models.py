"""Architectures that installed packages add."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from noria import LLM, ModelError, NoriaError, SamplingParams
from noria.config.errors import PluginError
from noria.config.plugins import Table, installed
from support_models import cached_checkpoint
from support_plugins import install, on_path

WHEEL = """
from noria.extending import Family, decoder_config
from noria.models.llama import Llama

class Wheel(Llama):
    @staticmethod
    def read_config(files):
        return decoder_config(files, Family("WheelForCausalLM", 320, 80, 512))

class Careless(Wheel):
    @staticmethod
    def read_config(files):
        return decoder_config(files, Family("SomeOtherName", 320, 80, 512))

class Falling(Wheel):
    @staticmethod
    def read_config(files):
        return decoder_config(files, Family("FallingForCausalLM", 320, 80, 512))

    def forward(self, ops):
        raise IndexError("no bucket left")

class Hollow:
    read_config = Falling.read_config
"""
GREEDY = SamplingParams(temperature=0, max_tokens=8)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Path]:
    """A directory on the path, for packages."""
    directory = tmp_path / "site"
    directory.mkdir()
    with on_path(directory):
        yield directory


def checkpoint(directory: Path, architecture: str) -> Path:
    """A Llama whose config.json names another architecture."""
    shutil.copytree(cached_checkpoint("llama"), directory)
    path = directory / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "architectures": [architecture]}))
    return directory


def output_of(model: Path) -> list[int]:
    with LLM(str(model), backend="torch") as llm:
        (result,) = llm.generate(["The water wheel"], GREEDY, show_progress=False)
    return result.outputs[0].token_ids


def test_an_installed_architecture_is_served_like_a_built_in_one(site: Path, tmp_path: Path) -> None:
    name = "WheelForCausalLM"
    install(site, "wheel-pack", {"noria.models": {name: "wheel_one:Wheel"}}, {"wheel_one": WHEEL})
    assert output_of(checkpoint(tmp_path / "model", name)) == output_of(cached_checkpoint("llama"))


@pytest.mark.parametrize(
    ("name", "target", "reason"),
    [
        ("GoneForCausalLM", "no_such_module:Wheel", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("GoneForCausalLM", "wheel_two:NoSuchClass", "has no attribute 'NoSuchClass'"),
        ("WheelForCausalLM", "wheel_two:Careless", "architecture is 'WheelForCausalLM', got 'SomeOtherName'"),
        ("FallingForCausalLM", "wheel_two:Falling", "IndexError: no bucket left"),
        ("FallingForCausalLM", "wheel_two:Hollow", "it has no names, shapes, forward"),
        ("WheelForCausalLM", "wheel_exits:Wheel", "SystemExit: 3"),
    ],
)
def test_a_broken_package_is_named_with_its_entry_point(
    site: Path, tmp_path: Path, name: str, target: str, reason: str
) -> None:
    modules = {"wheel_two": WHEEL, "wheel_exits": "import sys; sys.exit(3)"}
    install(site, "wheel-pack", {"noria.models": {name: target}}, modules)
    with pytest.raises(PluginError) as caught:
        output_of(checkpoint(tmp_path / "model", name))
    assert f"the entry point {name} = {target!r} (noria.models) of wheel-pack 1.0" in str(caught.value)
    assert reason in str(caught.value)


def test_a_broken_package_harms_no_other_model(site: Path) -> None:
    broken = {"noria.models": {"llama": "explodes:X", "LlamaForCausalLM": "explodes:X", "B": "explodes:X"}}
    install(site, "bad-pack", broken, {"explodes": "raise RuntimeError('on import')"})
    assert len(output_of(cached_checkpoint("llama"))) == 8


def test_an_unknown_architecture_is_refused_with_all_that_there_are(site: Path, tmp_path: Path) -> None:
    install(site, "wheel-pack", {"noria.models": {"WheelForCausalLM": "wheel_two:Wheel"}}, {})
    with pytest.raises(ModelError, match=r"supported are LlamaForCausalLM, .*WheelForCausalLM"):
        output_of(checkpoint(tmp_path / "model", "MillForCausalLM"))


def test_two_packages_with_one_name_are_both_named(site: Path, tmp_path: Path) -> None:
    for pack in ("wheel-pack", "other-pack"):
        install(site, pack, {"noria.models": {"WheelForCausalLM": "wheel_two:Wheel"}}, {"wheel_two": WHEEL})
    with pytest.raises(NoriaError, match=r"added by other-pack 1\.0 and wheel-pack 1\.0: uninstall"):
        output_of(checkpoint(tmp_path / "model", "WheelForCausalLM"))


def test_a_package_cannot_take_the_name_of_what_is_built_in(site: Path) -> None:
    install(site, "bad-pack", {"noria.models": {"llama": "json:loads"}}, {})
    table = Table("noria.models", {"llama": "noria.models.llama:Llama"})
    found = table.find("llama")
    assert found is not None and found.target == "noria.models.llama:Llama"
    (entry,) = [entry for entry in installed("noria.models") if entry.distribution == "bad-pack 1.0"]
    assert table.fault(entry) == "the name is built in; choose another"
