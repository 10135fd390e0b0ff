"""The safetensors files of a model directory: one file, or shards listed by model.safetensors.index.json."""

from __future__ import annotations

from pathlib import Path

from noria.config.errors import ModelError
from noria.loaders.fields import shorten
from noria.loaders.json_file import parse_unique_object, read_text
from noria.loaders.safetensors_file import SafetensorsFile, read_safetensors

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"


def read_shards(directory: Path) -> list[SafetensorsFile]:
    """Every file of the model, each tensor in exactly one of them. Raises ModelError."""
    if (directory / INDEX).is_file():
        return _read_indexed(directory)
    single = directory / SINGLE
    file = read_safetensors(single if single.is_file() else _only_file(directory))
    if not file.tensors:
        raise ModelError(f"{file.path}: holds no tensors")
    return [file]


def _only_file(directory: Path) -> Path:
    found = sorted(path.name for path in directory.glob("*.safetensors"))
    if len(found) == 1:
        return directory / found[0]
    reason = f"found {', '.join(found[:5])}" if found else "found no .safetensors file"
    raise ModelError(f"{directory}: must hold {SINGLE} or {INDEX} with its shards; {reason}")


def _read_indexed(directory: Path) -> list[SafetensorsFile]:
    index = directory / INDEX
    owners = _owners(index)
    names = sorted(set(owners.values()))
    missing = [name for name in names if not (directory / name).is_file()]
    if missing:
        raise ModelError(
            f"{index}: {len(missing)} of {len(names)} shards are missing: {', '.join(missing[:5])}"
        )
    files = [read_safetensors(directory / name) for name in names]
    held: dict[str, set[str]] = {file.path.name: set(file.tensors) for file in files}
    for tensor, shard in owners.items():
        if tensor not in held[shard]:
            raise ModelError(f"{index}: says {shard} holds the tensor {shorten(tensor)}, but it does not")
    for shard, tensors in held.items():
        strays = sorted(tensor for tensor in tensors if owners.get(tensor) != shard)
        if strays:
            raise ModelError(f"{index}: does not say that {shard} holds the tensor {shorten(strays[0])}")
    return files


def _owners(index: Path) -> dict[str, str]:
    """Tensor name -> name of the shard that holds it."""
    owners = parse_unique_object(read_text(index), str(index)).get("weight_map")
    if not isinstance(owners, dict) or not owners:
        raise ModelError(
            f"{index}: weight_map must be an object naming each tensor's shard, found {shorten(owners)}"
        )
    for tensor, shard in owners.items():
        # A shard is a file of this directory: an index must not reach out of it.
        if not isinstance(shard, str) or not _is_file_name(shard):
            raise ModelError(
                f"{index}: the shard of tensor {shorten(tensor)} must be a .safetensors file beside the index, "
                f"found {shorten(shard)}"
            )
    return owners


def _is_file_name(name: str) -> bool:
    return name.endswith(".safetensors") and "\0" not in name and Path(name).name == name
