"""A calibration in a file: the step model, the settings that it holds for, and how well it was found to foretell."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from noria.capacity.front import NO_FRONT, Front
from noria.capacity.step_model import StepModel
from noria.config.engine import EngineConfig
from noria.config.errors import ConfigError

FORMAT = 3


@dataclass(frozen=True, slots=True)
class Calibration:
    """mape, bias: of steps that the model had not seen, as in `fit.Fit`. machine: its processor and cores, in words.

    front: what clients wait for beside the engine; nothing where only the engine was measured.
    """

    config: EngineConfig
    model: StepModel
    num_steps: int
    mape: float
    bias: float
    engine_version: str
    machine: str
    format: int = FORMAT
    front: Front = NO_FRONT


def save(calibration: Calibration, path: str | Path) -> None:
    """Raises ConfigError where the file cannot be written."""
    content = msgspec.json.format(msgspec.json.encode(calibration), indent=1)
    try:
        Path(path).write_bytes(content + b"\n")
    except OSError as error:
        raise ConfigError(f"the step model {path} cannot be written: {error.strerror}") from error


def check_writable(path: str | Path) -> None:
    """Raise ConfigError if the file cannot be written, before minutes of measuring are lost to it."""
    target = Path(path)
    is_new = not target.exists()
    try:
        target.open("ab").close()
        if is_new:
            target.unlink()
    except OSError as error:
        raise ConfigError(f"the step model {path} cannot be written: {error.strerror}") from error


def load(path: str | Path) -> Calibration:
    """Raises ConfigError for what is not a calibration that this version can read."""
    try:
        found = msgspec.json.decode(Path(path).read_bytes(), type=Calibration)
    except OSError as error:
        raise ConfigError(f"the step model {path} cannot be read: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise ConfigError(f"{path} is no step model: {error}; noria calibrate writes one") from error
    if found.format != FORMAT:
        raise ConfigError(
            f"{path} is a step model of format {found.format}, this version reads {FORMAT}: calibrate again"
        )
    return found
