"""What a user may ask of `noria simulate`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from noria.config.benching import LoadOptions, ProgressOptions, ResultOptions, WorkloadOptions
from noria.config.option import PATH, WHOLE, Several, check_values, option


@dataclass(frozen=True, slots=True)
class SimulationOptions:
    """What is simulated."""

    TITLE: ClassVar[str] = "Simulation"

    step_model: str = option(
        "step_model.json",
        "How long steps take: what noria calibrate wrote.",
        PATH,
        positional=True,
    )
    replicas: int = option(1, "Engines behind one router.", WHOLE, low=1)
    router: str = option(
        "least-requests",
        "Which of them gets a request. round-robin: the next in turn; least-requests: the one with the fewest; "
        "least-tokens: the one with the fewest tokens to read; prefix: the one that got prompts with this beginning "
        "before.",
        choices=("round-robin", "least-requests", "least-tokens", "prefix"),
    )
    what_if: tuple[str, ...] = option(
        (),
        "Other settings, as max_num_seqs=64 or num_blocks=500, beside those of the step model: both are simulated on "
        "the same load. Repeat it to change several.",
        several=Several.REPEATED,
        default_words="only the step model's own settings",
    )
    runs: int = option(
        10,
        "Simulations of the same load for the interval that is printed with every figure: they differ in how step "
        "times scatter, and in which of the step models is taken that may be the true one.",
        WHOLE,
        low=1,
    )
    validate: str | None = option(
        None,
        "Run log of a server (noria serve --run-log) to put beside its own simulation: its decisions step by step, "
        "which must be the same, and its times. The workload is the log's.",
        PATH,
        default_words="simulate the workload",
    )

    def __post_init__(self) -> None:
        check_values(self)


@dataclass(frozen=True, slots=True)
class SimulateOptions:
    """Everything asked of `noria simulate`."""

    simulation: SimulationOptions = field(default_factory=SimulationOptions)
    workload: WorkloadOptions = field(default_factory=WorkloadOptions)
    load: LoadOptions = field(default_factory=LoadOptions)
    result: ResultOptions = field(default_factory=ResultOptions)
    progress: ProgressOptions = field(default_factory=ProgressOptions)
