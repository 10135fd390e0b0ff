"""What a user may ask of the other subcommands of `noria bench`, and of `noria config`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from noria.config.asked import EngineOptions
from noria.config.benching import ResultOptions, WorkloadOptions
from noria.config.option import PATH, REAL, WHOLE, Several, check_values, option


@dataclass(frozen=True, slots=True)
class TraceFileOptions:
    TITLE: ClassVar[str] = "Trace"

    trace: str | None = option(
        None, "The trace to look at.", PATH, positional=True, default_words="must be given"
    )
    trace_format: str = option(
        "auto",
        "What the file is; auto looks at its first line.",
        choices=("auto", "azure", "burstgpt", "mooncake", "noria", "run-log"),
    )
    trace_block_size: int = option(512, "Tokens that one of Mooncake's hash_ids stands for.", WHOLE, low=1)
    trace_time_unit: float = option(
        0.001, "Seconds that a unit of Mooncake's timestamps is.", REAL, low=0, low_is_open=True
    )
    write_trace: str | None = option(None, "Write the trace to this file.", PATH, default_words="not written")
    write_format: str = option("noria", "The form of --write-trace.", choices=("noria", "azure", "mooncake"))

    def __post_init__(self) -> None:
        check_values(self)


@dataclass(frozen=True, slots=True)
class TraceCommandOptions:
    """Everything asked of `noria bench trace`."""

    trace: TraceFileOptions = field(default_factory=TraceFileOptions)


@dataclass(frozen=True, slots=True)
class CountOptions:
    TITLE: ClassVar[str] = "Amount"

    requests: int = option(48, "How many requests.", WHOLE, low=1, aliases=("--num-prompts",))

    def __post_init__(self) -> None:
        check_values(self)


@dataclass(frozen=True, slots=True)
class BatchOptions:
    TITLE: ClassVar[str] = "Batch"

    batch: int = option(
        8,
        "Places in a batch: the max_num_seqs of both. Fewer than there are requests, or nobody waits.",
        WHOLE,
        low=1,
    )

    def __post_init__(self) -> None:
        check_values(self)


@dataclass(frozen=True, slots=True)
class BatchingCommandOptions:
    """Everything asked of `noria bench batching`."""

    batch: BatchOptions = field(default_factory=BatchOptions)
    amount: CountOptions = field(default_factory=CountOptions)
    workload: WorkloadOptions = field(default_factory=WorkloadOptions)
    result: ResultOptions = field(default_factory=ResultOptions)
    engine: EngineOptions = field(default_factory=EngineOptions)


@dataclass(frozen=True, slots=True)
class SizesOptions:
    TITLE: ClassVar[str] = "Block sizes"

    sizes: tuple[int, ...] = option(
        (),
        "Block sizes to try, in tokens.",
        WHOLE,
        several=Several.SPREAD,
        default_words="8 16 32 64, as far as the backend knows them",
    )
    rounds: int = option(3, "How often each is run, in turns; the median counts.", WHOLE, low=1)

    def __post_init__(self) -> None:
        check_values(self)


@dataclass(frozen=True, slots=True)
class BlockSizeCommandOptions:
    """Everything asked of `noria bench block-size`."""

    sizes: SizesOptions = field(default_factory=SizesOptions)
    amount: CountOptions = field(default_factory=CountOptions)
    workload: WorkloadOptions = field(default_factory=WorkloadOptions)
    result: ResultOptions = field(default_factory=ResultOptions)
    engine: EngineOptions = field(default_factory=EngineOptions)


@dataclass(frozen=True, slots=True)
class RatiosOptions:
    TITLE: ClassVar[str] = "Sharing ratios"

    ratios: tuple[float, ...] = option(
        (0.0, 0.25, 0.5, 0.75, 1.0),
        "Shares of the requests that begin with a common prefix.",
        REAL,
        several=Several.SPREAD,
        low=0,
        high=1,
        default_words="0 0.25 0.5 0.75 1",
    )
    rounds: int = option(3, "How often each is run, in turns; the median counts.", WHOLE, low=1)

    def __post_init__(self) -> None:
        check_values(self)


@dataclass(frozen=True, slots=True)
class PrefixCommandOptions:
    """Everything asked of `noria bench prefix`."""

    ratios: RatiosOptions = field(default_factory=RatiosOptions)
    amount: CountOptions = field(default_factory=CountOptions)
    workload: WorkloadOptions = field(default_factory=WorkloadOptions)
    result: ResultOptions = field(default_factory=ResultOptions)
    engine: EngineOptions = field(default_factory=EngineOptions)


@dataclass(frozen=True, slots=True)
class RunsOptions:
    TITLE: ClassVar[str] = "Runs"

    runs: tuple[str, ...] = option(
        (),
        "The directories, or result.json files, of two runs; or two operating points.",
        PATH,
        several=Several.SPREAD,
        positional=True,
        default_words="must be given",
    )

    def __post_init__(self) -> None:
        check_values(self)


@dataclass(frozen=True, slots=True)
class DiffCommandOptions:
    """Everything asked of `noria config diff`."""

    runs: RunsOptions = field(default_factory=RunsOptions)
