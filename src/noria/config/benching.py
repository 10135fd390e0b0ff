"""What a user may ask of `noria bench serve` and `noria bench trace`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from noria.config.asked import EngineOptions
from noria.config.option import MAPPING, PATH, REAL, SWITCH, WHOLE, Several, check_values, option


@dataclass(frozen=True, slots=True)
class TargetOptions:
    """What is measured."""

    TITLE: ClassVar[str] = "What is measured"

    base_url: str | None = option(
        None,
        "Address of an OpenAI-compatible server, with or without /v1. Without it the engine runs in the process that "
        "makes the load, and nothing of HTTP is measured.",
        default_words="the engine in process",
    )
    endpoint: str = option(
        "completions",
        "What requests go to. completions gets token ids, so prompts have exactly the asked length; chat gets text, "
        "whose length is checked against the server's count.",
        choices=("completions", "chat"),
    )
    api_key: str | None = option(
        None,
        "Key that the server wants.",
        secret=True,
        fallbacks=("OPENAI_API_KEY",),
        default_words="none",
    )
    request_model: str | None = option(
        None, "Name of the model in requests.", default_words="the first that the server lists"
    )
    extra_body: Mapping[str, Any] | None = option(
        None, "More fields of every request, over those that are sent anyway.", MAPPING, default_words="none"
    )
    ignore_eos: bool = option(
        True,
        "Let every answer have exactly the planned length. A server that does not know the field wants it off.",
        SWITCH,
    )
    exact_chunks: bool = option(
        False,
        "Ask for usage with every chunk, so that chunks of several tokens are counted exactly instead of by their "
        "text. Noria and vLLM know it; it costs both sides a little.",
        SWITCH,
    )
    answer_limit: float = option(
        600.0, "Seconds after which a request counts as failed.", REAL, low=0, low_is_open=True
    )

    def __post_init__(self) -> None:
        check_values(self)


@dataclass(frozen=True, slots=True)
class WorkloadOptions:
    """What requests look like."""

    TITLE: ClassVar[str] = "Workload"

    prompt_tokens: str = option(
        "lognormal:128,0.8",
        "Lengths of prompts: 256, 64-512, normal:MEAN,SD, lognormal:MEDIAN,SIGMA, or a mix as in "
        "128*0.8+2048*0.2. Shared prefixes come on top.",
    )
    output_tokens: str = option("lognormal:64,0.8", "Lengths of answers, written as those of prompts.")
    prefix_tokens: int = option(
        0, "Tokens that prompts of a group begin with in common, like a system prompt.", WHOLE, low=0
    )
    prefix_groups: int = option(1, "How many such prefixes there are.", WHOLE, low=1)
    prefix_sharing: float = option(
        1.0,
        "Share of the requests that begin with the prefix of a group; the others begin with one of their own, of the "
        "same length.",
        REAL,
        low=0,
        high=1,
    )
    turns: str = option(
        "1",
        "Turns of a conversation, written as lengths: 1-5. A later turn comes after the answer to the one before, and "
        "its prompt begins with everything said.",
    )
    pause: float = option(1.0, "Mean seconds from an answer to the next turn.", REAL, low=0)
    synthetic: str | None = option(
        None,
        "Lengths, turns and prefixes in one, as guidellm writes it: prompt_tokens=256,prompt_tokens_stdev=64,"
        "output_tokens=128,turns=3,prefix_tokens=64,prefix_count=4.",
        default_words="the settings above",
    )
    trace: str | None = option(
        None,
        "Requests of a file instead: Azure's CSV, BurstGPT's CSV, Mooncake's JSONL, ShareGPT's JSON, the "
        "requests.jsonl of a run, or what noria serve --run-log took down. Instants in it are kept, unless "
        "--rate is stated.",
        PATH,
        default_words="made up",
    )
    trace_format: str = option(
        "auto",
        "What the file is; auto looks at its first line.",
        choices=("auto", "azure", "burstgpt", "mooncake", "sharegpt", "noria", "run-log"),
    )
    trace_block_size: int = option(512, "Tokens that one of Mooncake's hash_ids stands for.", WHOLE, low=1)
    trace_time_unit: float = option(
        0.001, "Seconds that a unit of Mooncake's timestamps is.", REAL, low=0, low_is_open=True
    )
    max_prompt_tokens: int | None = option(
        None, "Cut longer prompts to this.", WHOLE, low=1, default_words="what fits the model"
    )
    max_output_tokens: int | None = option(
        None, "Cut longer answers to this.", WHOLE, low=1, default_words="what fits the model"
    )
    bench_seed: int = option(
        0, "Draws lengths, prompts and instants: the same seed, the same load.", WHOLE, low=0
    )

    def __post_init__(self) -> None:
        check_values(self)


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How requests come, and when it ends."""

    TITLE: ClassVar[str] = "Load"

    rate: float | None = option(
        None,
        "Requests a second on average, whatever the server does (open loop).",
        REAL,
        low=0,
        low_is_open=True,
        aliases=("--request-rate",),
        default_words="a trace's own instants; else closed loop",
    )
    burstiness: float = option(
        1.0,
        "How evenly they come: intervals are gamma-distributed with this shape. 1 is Poisson, 0.25 comes in bursts, "
        "4 is nearly regular.",
        REAL,
        low=0,
        low_is_open=True,
    )
    rate_scaling: str = option(
        "compress",
        "How a trace is brought to --rate: compress divides times, thin leaves requests out, resample draws requests "
        "and lets them come by a process of its own. The tails differ.",
        choices=("compress", "thin", "resample"),
    )
    ramp_to: float | None = option(
        None, "Rate that --rate grows or falls to.", REAL, low=0, low_is_open=True, default_words="no ramp"
    )
    ramp_seconds: float = option(60.0, "How long --ramp-to takes.", REAL, low=0, low_is_open=True)
    ramp_shape: str = option(
        "linear", "linear: by equal steps; exponential: by equal factors.", choices=("linear", "exponential")
    )
    max_concurrency: int | None = option(
        None,
        "Most requests in flight. Without --rate: always as many (closed loop). With it: later ones wait, and their "
        "waiting counts.",
        WHOLE,
        low=1,
        default_words="16 in a closed loop, else no limit",
    )
    requests: int | None = option(
        None,
        "End after this many.",
        WHOLE,
        low=1,
        aliases=("--num-prompts",),
        default_words="all of a trace, else 1000",
    )
    duration: float | None = option(
        None, "Send for this many seconds.", REAL, low=0, low_is_open=True, default_words="no limit"
    )
    until: str | None = option(
        None,
        "certain: send until it is certain that the limits of --slo are met or missed, at most --requests.",
        choices=("certain",),
        default_words="--requests or --duration",
    )
    slo: tuple[str, ...] = option(
        (),
        "Limits in ms: ttft:500 tpot:50 e2el:10000, or the name of a pair: chat (200/50), rag (300/100), code "
        "(500/150).",
        several=Several.SPREAD,
        aliases=("--goodput",),
        default_words="none",
    )
    slo_target: float = option(
        0.95, "Share of all requests that shall keep every limit.", REAL, low=0, high=0.9999, low_is_open=True
    )
    confidence: float = option(
        0.95, "How sure the verdict and the intervals shall be.", REAL, low=0.5, high=0.9999
    )

    def __post_init__(self) -> None:
        check_values(self)


@dataclass(frozen=True, slots=True)
class ResultOptions:
    """Where results go."""

    TITLE: ClassVar[str] = "Results"

    out: str | None = option(
        None,
        "Directory for everything that is written; docs/bench.md and docs/tune.md say what that is.",
        PATH,
        default_words="runs/TIME",
    )

    def __post_init__(self) -> None:
        check_values(self)


@dataclass(frozen=True, slots=True)
class ProgressOptions:
    """What is told meanwhile."""

    TITLE: ClassVar[str] = "Results"

    progress: bool = option(True, "Show what happens while it does.", SWITCH)

    def __post_init__(self) -> None:
        check_values(self)


@dataclass(frozen=True, slots=True)
class TextsOptions:
    """What is kept of answers."""

    TITLE: ClassVar[str] = "Results"

    save_texts: bool = option(False, "Keep the answers' texts in result.json.", SWITCH)

    def __post_init__(self) -> None:
        check_values(self)


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """Everything asked of `noria bench serve`."""

    target: TargetOptions = field(default_factory=TargetOptions)
    workload: WorkloadOptions = field(default_factory=WorkloadOptions)
    load: LoadOptions = field(default_factory=LoadOptions)
    result: ResultOptions = field(default_factory=ResultOptions)
    progress: ProgressOptions = field(default_factory=ProgressOptions)
    texts: TextsOptions = field(default_factory=TextsOptions)
    engine: EngineOptions = field(default_factory=EngineOptions)
