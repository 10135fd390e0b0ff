"""Set up what was asked for: peers, forms of the model, engines. What fails is left out, with why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.peers import environments, forms, servers
from benchmarks.peers.children import ChildFailed
from benchmarks.peers.engines import NORIA, Engine
from benchmarks.peers.environments import WorkFolder
from benchmarks.peers.openvino_engine import OpenVino


@dataclass
class Assembly:
    """file_format: "file" where the wanted form could not be made. problems: by engine, or "form"."""

    file: Path
    file_format: str
    engines: list[Engine] = field(default_factory=list)
    problems: dict[str, str] = field(default_factory=dict)


def assemble(
    wanted: Sequence[str], work_folder: WorkFolder, model: Path, file_format: str, num_threads: int
) -> Assembly:
    """The wanted engines in their order, ready to be started. model: a GGUF file."""
    assembly = Assembly(model, "file")
    if file_format != "file":
        _requantise(assembly, work_folder, file_format, "llama.cpp" in wanted)
    builders: dict[str, Callable[[], Engine]] = {
        NORIA: lambda: servers.noria(assembly.file, num_threads, work_folder.root / "noria.log"),
        "openvino": lambda: OpenVino(
            environments.openvino_python(work_folder),
            assembly.file,
            num_threads,
            work_folder.root / "openvino.log",
        ),
        "llama.cpp": lambda: servers.llama_cpp(
            environments.llama_tools(work_folder)["llama-server"],
            assembly.file,
            num_threads,
            work_folder.root / "llama.cpp.log",
        ),
        "vllm": lambda: _vllm(work_folder, model, num_threads),
    }
    for name in wanted:
        try:
            assembly.engines.append(builders[name]())
        except (ChildFailed, OSError) as error:
            assembly.problems[name] = f"left out: {error}"
    return assembly


def _requantise(assembly: Assembly, work_folder: WorkFolder, file_format: str, wants_server: bool) -> None:
    """Without llama.cpp's program every engine gets the file as it is."""
    tools = environments.LLAMA_TOOLS if wants_server else ("llama-quantize",)
    try:
        quantise = environments.llama_tools(work_folder, tools)["llama-quantize"]
        assembly.file = forms.quantised(work_folder, assembly.file, file_format, quantise)
        assembly.file_format = file_format
    except (ChildFailed, OSError) as error:
        assembly.problems["form"] = (
            f"every engine gets the file as it is, since {file_format} failed: {error}"
        )


def _vllm(work_folder: WorkFolder, model: Path, num_threads: int) -> Engine:
    python = environments.vllm_python(work_folder)
    checkpoint = forms.checkpoint(work_folder, model, python)
    return servers.vllm(python, checkpoint, num_threads, work_folder.root / "vllm.log")
