"""Which programs and forms each choice of engines needs, with nothing installed: the steps are replaced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from benchmarks.peers import environments, forms
from benchmarks.peers.assembly import Assembly, assemble
from benchmarks.peers.children import ChildFailed
from benchmarks.peers.engines import ENGINES, Situation
from benchmarks.peers.environments import WorkFolder


@dataclass
class Steps:
    """What was set up, in order; a step that is in `broken` fails."""

    taken: list[str] = field(default_factory=list)
    broken: set[str] = field(default_factory=set)

    def take(self, name: str, result: Path) -> Path:
        self.taken.append(name)
        if name in self.broken:
            raise ChildFailed(f"{name} ended with status 1")
        return result


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    steps = Steps()

    def llama_tools(
        work_folder: WorkFolder, tools: Sequence[str] = environments.LLAMA_TOOLS
    ) -> dict[str, Path]:
        return {tool: steps.take(f"build {tool}", Path(f"/bin/{tool}")) for tool in tools}

    replaced = {
        (environments, "llama_tools"): llama_tools,
        (environments, "openvino_python"): lambda w: steps.take("pip openvino", Path("/ov/python")),
        (environments, "vllm_python"): lambda w: steps.take("pip vllm", Path("/vllm/python")),
        (forms, "quantised"): lambda w, model, name, tool: steps.take(
            f"make {name}", Path(f"/forms/{name}.gguf")
        ),
        (forms, "checkpoint"): lambda w, model, python: steps.take("make bf16", Path("/forms/bf16")),
    }
    for (module, name), step in replaced.items():
        monkeypatch.setattr(module, name, step)
    return steps


def assembled(tmp_path: Path, wanted: Sequence[str] = ENGINES, file_format: str = "q4_0") -> Assembly:
    work_folder = WorkFolder(tmp_path, lambda _: None, build_jobs=1)
    return assemble(wanted, work_folder, Path("/models/m.gguf"), file_format, num_threads=2)


def test_three_engines_get_one_file_and_vllm_the_same_weights_in_bf16(steps: Steps, tmp_path: Path) -> None:
    found = assembled(tmp_path)
    models = {}
    for engine in found.engines:
        words = engine.command(Situation.LOAD).arguments
        models[engine.name] = [word for word in words if word.startswith(("/forms", "/models"))]
    one = ["/forms/q4_0.gguf"]
    assert models == {"noria": one, "openvino": one, "llama.cpp": one, "vllm": ["/forms/bf16"]}
    assert (found.file_format, found.problems) == ("q4_0", {})


def test_without_llama_cpp_only_its_quantiser_is_built_and_nothing_for_the_file_as_it_is(
    steps: Steps, tmp_path: Path
) -> None:
    assembled(tmp_path, ["noria", "openvino"])
    assert steps.taken == ["build llama-quantize", "make q4_0", "pip openvino"]
    steps.taken.clear()
    found = assembled(tmp_path, ["noria", "openvino"], "file")
    assert steps.taken == ["pip openvino"]
    assert (found.file, found.file_format) == (Path("/models/m.gguf"), "file")


def test_a_peer_that_cannot_be_set_up_is_left_out_and_the_rest_go_on(steps: Steps, tmp_path: Path) -> None:
    steps.broken = {"pip openvino", "make bf16"}
    found = assembled(tmp_path)
    assert [engine.name for engine in found.engines] == ["noria", "llama.cpp"]
    assert found.problems == {
        "openvino": "left out: pip openvino ended with status 1",
        "vllm": "left out: make bf16 ended with status 1",
    }


def test_without_the_quantiser_every_engine_gets_the_file_as_it_is(steps: Steps, tmp_path: Path) -> None:
    steps.broken = {"build llama-quantize"}
    found = assembled(tmp_path, ["noria", "openvino"])
    assert [engine.name for engine in found.engines] == ["noria", "openvino"]
    assert (found.file, found.file_format) == (Path("/models/m.gguf"), "file")
    assert "q4_0 failed: build llama-quantize ended with status 1" in found.problems["form"]


def test_room_for_sixteen_thousand_tokens_is_the_same_for_every_engine(steps: Steps, tmp_path: Path) -> None:
    lean = {engine.name: engine.command(Situation.LEAN).arguments for engine in assembled(tmp_path).engines}

    def after(name: str, flag: str) -> int:
        return int(lean[name][lean[name].index(flag) + 1])

    assert after("noria", "--num-gpu-blocks-override") * after("noria", "--block-size") == 16384
    assert after("vllm", "--num-gpu-blocks-override") * after("vllm", "--block-size") == 16384
    assert after("llama.cpp", "-c") == 16384
    assert after("openvino", "--kv-tokens") == 16384
