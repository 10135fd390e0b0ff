"""What a user may ask of `noria generate` and `noria chat`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from noria.config.asked import EngineOptions
from noria.config.option import PATH, REAL, SWITCH, WHOLE, Several, check_values, option

_RECOMMENDED = "what the model's makers recommend, else {}"


@dataclass(frozen=True, slots=True)
class SamplingOptions:
    """How tokens are chosen. None leaves a value to the model's makers."""

    TITLE: ClassVar[str] = "Sampling"

    temperature: float | None = option(
        None,
        "How freely to choose: 0 always takes the most likely token, 1 follows the model's probabilities.",
        REAL,
        low=0,
        default_words=_RECOMMENDED.format("1"),
    )
    top_p: float | None = option(
        None,
        "Keep the most likely tokens that together have this probability.",
        REAL,
        low=0,
        high=1,
        low_is_open=True,
        default_words=_RECOMMENDED.format("1 (all)"),
    )
    top_k: int | None = option(
        None,
        "Keep this many of the most likely tokens; 0 keeps all.",
        WHOLE,
        low=-1,
        default_words=_RECOMMENDED.format("0 (all)"),
    )
    min_p: float | None = option(
        None,
        "Keep tokens at least this likely, relative to the most likely one.",
        REAL,
        low=0,
        high=1,
        default_words=_RECOMMENDED.format("0 (all)"),
    )
    repetition_penalty: float | None = option(
        None,
        "Make tokens of prompt and output less likely (above 1) or more likely (below 1).",
        REAL,
        low=0,
        low_is_open=True,
        default_words=_RECOMMENDED.format("1 (none)"),
    )
    sampling_seed: int | None = option(
        None,
        "Makes the output repeatable: the same seed gives the same tokens.",
        WHOLE,
        default_words="drawn from --seed",
    )
    max_tokens: int | None = option(
        None,
        "Most tokens to generate.",
        WHOLE,
        low=1,
        default_words="up to the end of the context",
    )
    stop: tuple[str, ...] = option(
        (),
        "End the output where this text would appear. Repeat it for several.",
        several=Several.REPEATED,
        default_words="none",
    )

    def __post_init__(self) -> None:
        check_values(self)


@dataclass(frozen=True, slots=True)
class PromptOptions:
    """What is generated from, and where the output goes."""

    TITLE: ClassVar[str] = "Prompts and output"

    prompt: tuple[str, ...] = option(
        (),
        "A prompt. Repeat it for several; they run as one batch.",
        several=Several.REPEATED,
        aliases=("-p",),
        default_words="one prompt a line from standard input",
    )
    chat: bool = option(
        False,
        "Put each prompt through the model's chat template, as the message of a user.",
        SWITCH,
    )
    n: int = option(1, "Outputs for each prompt.", WHOLE, low=1)
    ignore_eos: bool = option(False, "Go on after the model's end token, up to max_tokens.", SWITCH)
    json: bool = option(
        False,
        "Print one JSON object a prompt: text, token ids, finish reason, counts.",
        SWITCH,
    )
    trace: str | None = option(
        None,
        "File to write what every step computed to, in Chrome's trace format: open it in Perfetto "
        "(ui.perfetto.dev) or chrome://tracing.",
        PATH,
        default_words="no trace",
    )

    def __post_init__(self) -> None:
        check_values(self)


@dataclass(frozen=True, slots=True)
class TalkOptions:
    """How a conversation starts."""

    TITLE: ClassVar[str] = "Conversation"

    system: str | None = option(
        None,
        "System message that the conversation starts with.",
        default_words="none, or the chat template's own",
    )

    def __post_init__(self) -> None:
        check_values(self)


@dataclass(frozen=True, slots=True)
class GenerateOptions:
    """Everything asked of `noria generate`."""

    prompts: PromptOptions = field(default_factory=PromptOptions)
    sampling: SamplingOptions = field(default_factory=SamplingOptions)
    engine: EngineOptions = field(default_factory=EngineOptions)


@dataclass(frozen=True, slots=True)
class ChatCommandOptions:
    """Everything asked of `noria chat`."""

    talk: TalkOptions = field(default_factory=TalkOptions)
    sampling: SamplingOptions = field(default_factory=SamplingOptions)
    engine: EngineOptions = field(default_factory=EngineOptions)
