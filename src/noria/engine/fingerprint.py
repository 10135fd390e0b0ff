"""What identifies an engine in a measurement: its settings as they were settled, and its model by content."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from noria.config.resolved import Resolved

if TYPE_CHECKING:
    from noria.engine.opening import OpenedModel

# Of each tensor: its first bytes tell one model and one quantisation from another, and reading all would delay a start.
_SAMPLE_BYTES = 4096
_CHOICES = ("backend", "isa")


def model_identity(opened: OpenedModel) -> dict[str, Any]:
    """Of a model whose files are open: name, hash of names, shapes, kinds and beginnings of all tensors, and kinds."""
    checkpoint, digest = opened.checkpoint, hashlib.sha256()
    for name, tensor in sorted(checkpoint.tensors.items()):
        digest.update(f"{name} {tensor.shape} {tensor.kind}\n".encode())
        digest.update(checkpoint.read_raw(name, 0, _SAMPLE_BYTES).tobytes())
    kinds = Counter(tensor.kind for tensor in checkpoint.tensors.values())
    return {"name": opened.name, "hash": digest.hexdigest()[:32], "stored_as": dict(sorted(kinds.items()))}


def engine_settings(resolved: Resolved) -> dict[str, Any]:
    """Everything that was settled, by section; the model's own shapes are its identity's."""
    settings = asdict(resolved.config)
    settings.pop("model")
    for choice in resolved.choices:
        if choice.name in _CHOICES:
            settings[choice.name] = choice.value
    if resolved.is_step_open:
        settings["scheduler"]["max_num_batched_tokens"] = None
    return json.loads(json.dumps(settings, default=str))


def write_fingerprint(fingerprint: dict[str, Any], directory: str, incarnation: int) -> None:
    """For the processes that answer for this engine. May be written again, as more is settled."""
    path = _path(directory, incarnation)
    with open(f"{path}.part", "w", encoding="utf-8") as file:
        json.dump(fingerprint, file)
    os.replace(f"{path}.part", path)


def read_fingerprint(directory: str, incarnation: int) -> dict[str, Any]:
    """Empty where that engine has written none."""
    try:
        with open(_path(directory, incarnation), encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        return {}


def _path(directory: str, incarnation: int) -> str:
    return os.path.join(directory, f"fingerprint-{incarnation}")
