"""What a user may ask of `noria calibrate`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from noria.config.asked import EngineOptions
from noria.config.option import PATH, REAL, Several, check_values, option


@dataclass(frozen=True, slots=True)
class CalibrationOptions:
    """Where steps are measured, and what becomes of it."""

    TITLE: ClassVar[str] = "Calibration"

    output: str = option(
        "step_model.json",
        "File for the step model, which noria simulate reads.",
        PATH,
        aliases=("-o",),
    )
    minutes: float = option(
        2.0,
        "How long to measure. The model needs every kind of step a few times: less than a minute is little.",
        REAL,
        low=0,
        low_is_open=True,
    )
    from_log: tuple[str, ...] = option(
        (),
        "Learn from what a server took down (noria serve --run-log) instead of measuring here: its steps hold what "
        "HTTP and clients cost, too. Repeat it for several logs of the same settings.",
        PATH,
        several=Several.REPEATED,
        default_words="measure in this process",
    )
    from_bench: tuple[str, ...] = option(
        (),
        "Directory of a noria bench serve --base-url of that server, from the time of the log in the same place of "
        "--from-log: what its requests took beside the engine is what HTTP takes, and simulated requests take it too.",
        PATH,
        several=Several.REPEATED,
        default_words="simulate clients without HTTP",
    )

    def __post_init__(self) -> None:
        check_values(self)


@dataclass(frozen=True, slots=True)
class CalibrateOptions:
    """Everything asked of `noria calibrate`."""

    engine: EngineOptions = field(default_factory=EngineOptions)
    calibration: CalibrationOptions = field(default_factory=CalibrationOptions)
