"""From what a user calls a model to an opened checkpoint."""

from __future__ import annotations

import os
from pathlib import Path

from noria.config.errors import ModelError
from noria.loaders.checkpoint import Checkpoint
from noria.loaders.fields import shorten
from noria.loaders.gguf_checkpoint import GgufCheckpoint
from noria.loaders.gguf_file import MAGIC
from noria.loaders.gguf_parts import part_names
from noria.loaders.hub import fetch, parse_hub_id
from noria.loaders.model_bytes import ModelBytes
from noria.loaders.pull import KNOWN_MODELS, cached_path
from noria.loaders.safetensors_checkpoint import SafetensorsCheckpoint
from noria.loaders.safetensors_shards import INDEX


def open_checkpoint(model: str, revision: str | None = None) -> Checkpoint:
    """Find a model by `locate` and open it. Raises ModelError."""
    path = locate(model, revision)
    return SafetensorsCheckpoint(path) if path.is_dir() else GgufCheckpoint(path)


def locate(model: str, revision: str | None = None) -> Path:
    """The GGUF file, or the directory with safetensors, that `model` means. Raises ModelError.

    model: in this order a path to a .gguf file, a path to a directory with a safetensors model or with one
    GGUF model, the short name of a pulled model, or a hub id (`org/name` or `org/name:FILE.gguf`), the only
    one that may use the network. revision: a branch, tag or commit on the hub.
    """
    path = os.path.expanduser(model)
    if os.path.isfile(path):
        return _checked_file(Path(path))
    if os.path.isdir(path):
        return _model_in(Path(path))
    if model in KNOWN_MODELS:
        return _pulled(model)
    if _is_written_as_path(model):
        found = (
            "neither a file nor a directory" if os.path.exists(path) else "there is no such file or directory"
        )
        raise ModelError(f"{model}: {found}")
    hub_id = parse_hub_id(model)
    if hub_id is None:
        raise ModelError(
            f"{shorten(model)} is no path to a model, no known name ({', '.join(KNOWN_MODELS)}) and no hub id "
            f"(org/name or org/name:FILE.gguf)"
        )
    fetched = fetch(hub_id, revision)
    return fetched if hub_id.file else _model_in(fetched)


def _is_written_as_path(model: str) -> bool:
    return model.startswith(("/", ".", "~")) or (model.endswith(".gguf") and ":" not in model)


def _checked_file(path: Path) -> Path:
    if path.suffix != ".gguf" and not _starts_as_gguf(ModelBytes(path)):
        raise ModelError(f"{path}: not a model: give a .gguf file, or the directory of a safetensors model")
    return path


def _starts_as_gguf(file: ModelBytes) -> bool:
    return file.read(0, min(len(MAGIC), file.size)).tobytes() == MAGIC


def _model_in(directory: Path) -> Path:
    try:
        names = sorted(os.listdir(directory))
    except OSError as error:
        raise ModelError(f"{directory}: cannot be read: {error.strerror}") from error
    if "config.json" in names and any(name.endswith((".safetensors", INDEX)) for name in names):
        return directory
    # The parts of one model count once: by the first.
    models = sorted({part_names(name)[0] for name in names if name.endswith(".gguf")})
    if len(models) == 1:
        return directory / models[0]
    if models:
        raise ModelError(f"{directory}: holds several GGUF models, name one of them: {_listing(models)}")
    raise ModelError(
        f"{directory}: holds no model: there must be config.json with .safetensors files, or a .gguf file "
        f"(of a hub repository with GGUF files name one: org/name:FILE.gguf); found {_listing(names)}"
    )


def _listing(names: list[str]) -> str:
    return ", ".join(names[:8]) + (", ..." if len(names) > 8 else "") if names else "nothing"


def _pulled(name: str) -> Path:
    path = cached_path(name)
    if path is None:
        raise ModelError(f"{name} is not on this machine yet; get it by: noria pull {name}")
    return path
