"""One GGUF file in the forms that the engines want: requantised for three of them, bf16 safetensors for vLLM.

WORK/models/STEM-FINGERPRINT/q4_0.gguf, q8_0.gguf, ...     llama-quantize
WORK/models/STEM-FINGERPRINT/bf16/                         config, tokenizer, weights as transformers has them
"""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from benchmarks.peers.children import run
from benchmarks.peers.environments import WorkFolder

# "file" is the GGUF as it was given.
FORMATS = ("q4_0", "q4_1", "q8_0", "file")
_EDGE_BYTES = 1 << 20
_HF_SCRIPT = Path(__file__).with_name("hf_form.py")


def quantised(work_folder: WorkFolder, model: Path, file_format: str, quantise: Path) -> Path:
    """The model in `file_format`, which is not "file", by the program `quantise`. Raises ChildFailed."""
    folder = _folder(work_folder, model)
    form = folder / f"{file_format}.gguf"
    if not form.exists():
        partial = folder / f"{file_format}.partial"
        command = [str(quantise), "--allow-requantize", str(model), str(partial), file_format.upper()]
        run(command, folder / "forms.log", lambda line: work_folder.tell(f"making {form.name}: {line[:100]}"))
        partial.rename(form)
    return form


def checkpoint(work_folder: WorkFolder, model: Path, python: Path) -> Path:
    """The model dequantised to bf16 safetensors, by an interpreter with transformers and gguf. Raises ChildFailed."""
    folder = _folder(work_folder, model)
    form = folder / "bf16"
    if not form.exists():
        partial = folder / "bf16.partial"
        shutil.rmtree(partial, ignore_errors=True)
        # -I: the modules beside the script are not for its environment
        command = [str(python), "-I", str(_HF_SCRIPT), str(model), str(partial)]
        offline = {**os.environ, "HF_HUB_OFFLINE": "1"}
        run(
            command,
            folder / "forms.log",
            lambda line: work_folder.tell(f"making bf16: {line[:100]}"),
            offline,
        )
        partial.rename(form)
    return form


def _folder(work_folder: WorkFolder, model: Path) -> Path:
    return work_folder.folder(f"models/{model.stem}-{fingerprint(model)}")


def fingerprint(model: Path) -> str:
    """Of its size and both of its ends: enough to tell models apart, without reading gigabytes."""
    size = model.stat().st_size
    digest = hashlib.sha256(str(size).encode())
    with model.open("rb") as source:
        digest.update(source.read(_EDGE_BYTES))
        source.seek(max(0, size - _EDGE_BYTES))
        digest.update(source.read(_EDGE_BYTES))
    return digest.hexdigest()[:12]
