"""A GGUF model split over several files: NAME-00001-of-00003.gguf and so on.

The first part holds all the metadata; every part holds some tensors and says which part it is.
"""

from __future__ import annotations

import re
from pathlib import Path

from noria.config.errors import ModelError
from noria.loaders.fields import Fields
from noria.loaders.gguf_file import GgufFile, read_gguf

_PART_NAME = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")


def part_names(name: str) -> list[str]:
    """The file names of the model that `name` belongs to, in order: just `name` unless it is one of several."""
    match = _PART_NAME.fullmatch(name)
    count = int(match["count"]) if match else 0
    if match is None or not 1 <= int(match["number"]) <= count:
        return [name]
    return [f"{match['stem']}-{number:05d}-of-{count:05d}.gguf" for number in range(1, count + 1)]


def read_parts(path: Path) -> list[GgufFile]:
    """Every part of the model that the file at `path` belongs to, first part first. Raises ModelError."""
    names = part_names(path.name)
    paths = [path.with_name(name) for name in names]
    missing = [part.name for part in paths if not part.is_file()]
    if missing and len(paths) > 1:
        raise ModelError(f"{path}: is one part of {len(paths)}; missing beside it: {', '.join(missing[:5])}")
    parts = [read_gguf(part) for part in paths]
    for number, part in enumerate(parts):
        _check_place(part, number, len(parts))
    _check_tensors(parts)
    return parts


def _check_place(part: GgufFile, number: int, count: int) -> None:
    fields = Fields(part.metadata, str(part.path))
    stated_count = fields.integer("split.count", 1)
    if stated_count != count:
        raise ModelError(
            f"{part.path}: says the model has {stated_count} parts (split.count), but by its name it has {count}"
        )
    stated_number = fields.integer("split.no", 0, low=0)
    if stated_number != number:
        raise ModelError(
            f"{part.path}: says it is part {stated_number} (split.no, from 0), but by its name it is part {number}"
        )


def _check_tensors(parts: list[GgufFile]) -> None:
    owners: dict[str, Path] = {}
    for part in parts:
        for name in part.tensors:
            if name in owners:
                raise ModelError(f"{part.path}: the tensor {name!r} is also in {owners[name]}")
            owners[name] = part.path
    first = parts[0]
    if not owners:
        raise ModelError(f"{first.path}: holds no tensors (a vocabulary alone cannot be served)")
    stated = Fields(first.metadata, str(first.path)).integer("split.tensors.count", len(owners))
    if stated != len(owners):
        raise ModelError(
            f"{first.path}: says the model has {stated} tensors (split.tensors.count), found {len(owners)}"
        )
