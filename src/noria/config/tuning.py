"""What a user may ask of `noria tune`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from noria.config.asked import EngineOptions
from noria.config.benching import ProgressOptions, ResultOptions, WorkloadOptions
from noria.config.option import PATH, REAL, SWITCH, WHOLE, Several, check_values, option


@dataclass(frozen=True, slots=True)
class TuningOptions:
    """What is looked for, and what it may cost."""

    TITLE: ClassVar[str] = "Tuning"

    step_model: str | None = option(
        None,
        "How long steps take: what noria calibrate wrote for this model on this machine.",
        PATH,
        positional=True,
        default_words="measured first, for a quarter of --minutes on top of them",
    )
    ttft_ms: float | None = option(
        None,
        "Most milliseconds until the first token, counted from when a request was meant to come.",
        REAL,
        low=0,
        low_is_open=True,
        default_words="no limit",
    )
    itl_ms: float | None = option(
        None,
        "Most milliseconds between two tokens of an answer.",
        REAL,
        low=0,
        low_is_open=True,
        default_words="no limit",
    )
    percentile: float = option(
        95.0, "Of requests, and of gaps between tokens, that shall keep their limit.", REAL, low=50, high=99.9
    )
    itl_stat: str = option(
        "pooled",
        "What --itl-ms limits. pooled: all gaps of all answers; tpot: the mean gap of each answer.",
        choices=("pooled", "tpot"),
    )
    minutes: float = option(
        8.0,
        "How long the search may take: three tenths simulate, the rest measures on the real engine. Whatever is found "
        "by then is reported.",
        REAL,
        low=0,
        low_is_open=True,
    )
    simulate_only: bool = option(
        False, "Only simulate: nothing is started, and nothing is confirmed.", SWITCH
    )
    candidates: int = option(
        4,
        "How many of the best by simulation are measured on the real engine, if the time allows.",
        WHOLE,
        low=1,
    )
    requests: int = option(
        100,
        "Most requests of one probe on the real engine while settings are ranked; more only where they would be over "
        "within ten times the limit on the TTFT. The probes that certify take as many as the time allows.",
        WHOLE,
        low=20,
    )
    sim_requests: int = option(200, "Requests of a simulated probe.", WHOLE, low=20)
    confidence: float = option(0.95, "How sure the final verdict shall be.", REAL, low=0.5, high=0.9999)
    burstiness: float = option(
        1.0,
        "How evenly requests come, where no trace says when: 1 is Poisson, 0.25 comes in bursts, 4 is nearly regular.",
        REAL,
        low=0,
        low_is_open=True,
    )
    rate_scaling: str = option(
        "compress",
        "How a trace is brought to the rates that are tried, as for noria bench; thin is left out: a trace cannot be "
        "thinned to more than its own rate.",
        choices=("compress", "resample"),
    )
    attempt: tuple[str, ...] = option(
        (),
        "Values to try instead of the usual ones, as max_num_seqs=16,32,64; also of max_num_batched_tokens, block_size "
        "and enable_prefix_caching. Repeat it for several.",
        several=Several.REPEATED,
        aliases=("--try",),
        default_words="powers of two: 8 to 512 at once, 256 to 16384 a step, blocks of 8 to 64; the cache on, and off",
    )

    def __post_init__(self) -> None:
        check_values(self)


@dataclass(frozen=True, slots=True)
class TuneOptions:
    """Everything asked of `noria tune`."""

    tuning: TuningOptions = field(default_factory=TuningOptions)
    workload: WorkloadOptions = field(default_factory=WorkloadOptions)
    result: ResultOptions = field(default_factory=ResultOptions)
    progress: ProgressOptions = field(default_factory=ProgressOptions)
    engine: EngineOptions = field(default_factory=EngineOptions)
