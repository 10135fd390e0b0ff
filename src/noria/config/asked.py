"""What a user may ask of the engine. Nothing here is resolved: None and "auto" leave the choice to Noria."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from noria.config.asked_pooling import PoolingOptions
from noria.config.option import (
    LENGTH,
    MODEL,
    PATH,
    REAL,
    SIZE,
    SWITCH,
    WHOLE,
    check_values,
    option,
)

MAX_SEED = 2**64 - 1


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """What is served, and how its answers come about by default."""

    TITLE: ClassVar[str] = "Model"

    model: str | None = option(
        None,
        "The model to serve: a folder with safetensors files, a GGUF file, the name of a pulled model, or a repository "
        "on the Hugging Face hub, as org/name or org/name:FILE.gguf.",
        MODEL,
        positional=True,
        default_words="smollm2, a small model that noria pull fetches",
    )
    tokenizer: str | None = option(
        None,
        "Folder or file to take the tokenizer from, for a model that comes without one or with a wrong one.",
        PATH,
        default_words="the model's own",
    )
    revision: str | None = option(
        None,
        "Branch, tag or commit of the repository on the hub. Pin a commit to get the same weights for ever.",
        default_words="the main branch",
    )
    dtype: str = option(
        "auto",
        "Number format of weights that are stored in float32. float32 is the most exact; 16 bits take half the "
        "memory. On the native backend weights stored in 16 bits or fewer stay as they are, which loses nothing. "
        "The torch backend converts all weights. auto: float32 on a CPU.",
        choices=("auto", "float32", "bfloat16", "float16"),
        synonyms=(("half", "float16"), ("float", "float32")),
    )
    quantization: str = option(
        "none",
        "Round weights to fewer bits while they are loaded, to answer faster and take less memory. w8: 8.5 bits a "
        "weight; answers hardly change. w4: 5 bits, with the embedding and the output in w8; small models get "
        "visibly worse, models of several billion weights little. Tensors that the file has quantised already stay "
        "as they are. Only the native backend can. none: weights as they are stored.",
        choices=("none", "w8", "w4"),
    )
    device: str = option(
        "auto",
        "Where the model runs. This version runs on CPUs.",
        choices=("auto", "cpu"),
    )
    backend: str = option(
        "auto",
        "What computes. native: Noria's own library, which keeps quantised weights as they are stored; torch: the "
        "reference, exact and slower. auto: native where it serves the model on this machine, else torch.",
        choices=("auto", "native", "torch"),
    )
    isa: str = option(
        "auto",
        "The instructions that the native backend multiplies with: avx2, avx2_vnni, avx512_vnni or avx512_amx. auto: "
        "the best that this CPU runs and that multiplies right when tried.",
    )
    seed: int = option(
        0,
        "Draws the seeds of requests that bring none: restarted with the same seed, the same requests in the "
        "same order get the same answers.",
        WHOLE,
        low=0,
        high=MAX_SEED,
    )
    chat_template: str | None = option(
        None,
        "File with the Jinja template that turns chat messages into a prompt.",
        PATH,
        default_words="the model's own",
    )
    chat_template_content_format: str = option(
        "auto",
        "What the chat template takes a message's content to be. string: a text; openai: a list of parts; auto: what "
        "can be read off the template.",
        choices=("auto", "string", "openai"),
    )
    generation_config: str = option(
        "auto",
        "Sampling values for requests that state none. auto: those the model's makers recommend in "
        "generation_config.json; none: the neutral ones (temperature 1, every token kept).",
        choices=("auto", "none"),
        synonyms=(("vllm", "none"),),
    )

    def __post_init__(self) -> None:
        check_values(self)


@dataclass(frozen=True, slots=True)
class MemoryOptions:
    """How memory is shared out."""

    TITLE: ClassVar[str] = "Memory"

    max_model_len: int | Literal["auto"] | None = option(
        None,
        "The longest request, prompt and output together, in tokens. A number is kept or refused; auto is the "
        "longest that the KV cache holds. Shorter leaves room for more requests at once.",
        LENGTH,
        low=1,
        default_words="the model's own length, shortened with a notice where memory is too small",
    )
    gpu_memory_utilization: float | None = option(
        None,
        "Share of the device's memory that Noria as a whole may use: weights, workspace and KV cache. On a CPU "
        "the share of what the host or the container allows this process. Never more than is free at start.",
        REAL,
        low=0,
        high=1,
        low_is_open=True,
        aliases=("--memory-utilization",),
        default_words="0.92 on an accelerator; 0.5 on a CPU (the rest of the machine is yours), more only as far "
        "as the model needs it",
    )
    kv_cache_memory: int | None = option(
        None,
        "Size of the KV cache, stated instead of derived.",
        SIZE,
        low=1,
        aliases=("--kv-cache-memory-bytes",),
        default_words="what the weights and the workspace leave",
    )
    block_size: int = option(
        16,
        "Tokens in one block of the KV cache. A request wastes less than one block; larger blocks are fewer to "
        "manage and share prefixes more coarsely.",
        WHOLE,
        choices=(8, 16, 32, 64, 128, 256),
    )
    kv_cache_dtype: str = option(
        "auto",
        "Number format of the KV cache. 16 bits hold twice the tokens of float32 in the same memory, and a long "
        "context is read in half the time. float16 changes answers least: it rounds eight times finer than "
        "bfloat16. It reaches 65504; larger keys and values, which are rare, become that, while bfloat16 has no "
        "such limit. int8, on the native backend alone, takes little more than half of 16 bits; answers change "
        "slightly. auto: float16 on the native backend, that of dtype on torch.",
        choices=("auto", "float32", "float16", "bfloat16", "int8"),
        synonyms=(("half", "float16"), ("float", "float32")),
    )
    num_gpu_blocks_override: int | None = option(
        None,
        "Number of KV cache blocks, stated instead of derived: to repeat an experiment on another machine.",
        WHOLE,
        low=1,
        default_words="derived from memory",
    )
    enable_prefix_caching: bool = option(
        True,
        "Keep the KV of finished requests while nobody needs the space, and reuse it for requests that begin "
        "with the same tokens. Answers do not change.",
        SWITCH,
    )
    prefix_cache_isolation: str = option(
        "none",
        "Who shares cached prefixes. none: everybody, so a system prompt is computed once for all; how soon the first "
        "token comes can tell one client what another has sent. key: only requests of one holder of an API key.",
        choices=("none", "key"),
    )

    def __post_init__(self) -> None:
        check_values(self)


@dataclass(frozen=True, slots=True)
class SchedulerOptions:
    """What runs in a step, and in which order."""

    TITLE: ClassVar[str] = "Scheduler"

    max_num_batched_tokens: int | None = option(
        None,
        "Most tokens one step computes, prompts and outputs together. Lower: steadier gaps between the tokens "
        "of running requests. Higher: prompts are read sooner.",
        WHOLE,
        low=1,
        default_words="2048; on a CPU also what takes 100 ms beside answers, as timed at start and corrected while "
        "running",
    )
    itl_slo_ms: float | None = option(
        None,
        "Most milliseconds between two tokens of an answer, 95 times in 100. Each step then computes as much as keeps "
        "to it by the measured speed of the machine, corrected while running: long prompts are read in smaller "
        "pieces beside answers, and in larger ones where nobody waits; requests wait where answers alone take most of "
        "it. max_num_batched_tokens stays the most.",
        REAL,
        low=0,
        low_is_open=True,
        default_words="on a CPU, without max_num_batched_tokens, steps aim at 100 ms and nobody waits for it",
    )
    ttft_slo_ms: float | None = option(
        None,
        "Most milliseconds until the first token, 95 times in 100: no step is so long that a request that comes "
        "meanwhile is late for it. Without itl_slo_ms, steps beside answers take about 100 ms.",
        REAL,
        low=0,
        low_is_open=True,
        default_words="no limit",
    )
    max_num_seqs: int = option(
        128,
        "Most requests that run at once; others wait. More raises throughput until memory or compute is used "
        "up, and slows each single request.",
        WHOLE,
        low=1,
    )
    enable_chunked_prefill: bool = option(
        True,
        "Read a long prompt in pieces, so that running requests go on meanwhile. Off, a prompt must fit one "
        "step: max_num_batched_tokens at least max_model_len.",
        SWITCH,
    )
    scheduling_policy: str = option(
        "fair",
        "Which waiting request goes first. fair: the owners of API keys share the engine by their weights, and each "
        "owner's requests go first come, first served; fcfs: the one that came first, whoever sent it; priority: the "
        "one with the lowest priority number, waiting time counted in.",
        choices=("fair", "fcfs", "priority"),
    )
    priority_aging_s: float = option(
        30.0,
        "Under the priority policy, seconds of waiting that are worth one priority level, so that nobody waits "
        "for ever. Shorter is closer to first come, first served.",
        REAL,
        low=0,
        low_is_open=True,
    )
    admission_policy: str = option(
        "continuous",
        "When a waiting request may join. continuous: at any step; static: only once the running batch has "
        "ended, which is slower and is here to be measured against.",
        choices=("continuous", "static"),
    )

    def __post_init__(self) -> None:
        check_values(self)

    @property
    def has_latency_target(self) -> bool:
        return self.itl_slo_ms is not None or self.ttft_slo_ms is not None


@dataclass(frozen=True, slots=True)
class ThreadOptions:
    """How much of the processor is used."""

    TITLE: ClassVar[str] = "Threads"

    num_threads: int | None = option(
        None,
        "Threads that compute. Answers do not depend on it; more than there are CPUs is slower.",
        WHOLE,
        low=1,
        high=1024,
        aliases=("--threads",),
        fallbacks=("OMP_NUM_THREADS",),
        default_words="the CPUs that this process may use",
    )

    def __post_init__(self) -> None:
        check_values(self)


@dataclass(frozen=True, slots=True)
class RuleOptions:
    """What decoding rules of installed packages may take."""

    TITLE: ClassVar[str] = "Decoding rules"

    rule_time_limit_s: float = option(
        1.0,
        "Seconds that the decoding rules of a step may take, all together. A rule that takes longer has its process "
        "ended and its request fails. Others in the batch are held up by it for no longer than that, once.",
        REAL,
        low=0,
        low_is_open=True,
    )

    def __post_init__(self) -> None:
        check_values(self)


@dataclass(frozen=True, slots=True)
class PointOptions:
    """Settings that were found for a load."""

    TITLE: ClassVar[str] = "Operating point"

    operating_point: str | None = option(
        None,
        "File with the settings that noria tune found to carry the most within limits. They hold where neither a flag "
        "nor the environment nor --config says otherwise; what is otherwise here than where they were found is told at "
        "start.",
        PATH,
        default_words="no operating point",
    )

    def __post_init__(self) -> None:
        check_values(self)


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Everything asked of an engine. `from_mapping(EngineOptions, {...})` makes one from flat names."""

    model: ModelOptions = field(default_factory=ModelOptions)
    memory: MemoryOptions = field(default_factory=MemoryOptions)
    scheduler: SchedulerOptions = field(default_factory=SchedulerOptions)
    threads: ThreadOptions = field(default_factory=ThreadOptions)
    pooling: PoolingOptions = field(default_factory=PoolingOptions)
    rules: RuleOptions = field(default_factory=RuleOptions)
    point: PointOptions = field(default_factory=PointOptions)
