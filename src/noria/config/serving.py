"""What a user may ask of the HTTP server, and of server and engine together."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from noria.config.answers import AnswerOptions
from noria.config.asked import EngineOptions
from noria.config.connections import ConnectionOptions
from noria.config.limits import LimitOptions
from noria.config.logs import LogOptions
from noria.config.observing import ObservingOptions
from noria.config.option import PATH, REAL, SWITCH, WHOLE, Several, check_values, option
from noria.config.processes import ProcessOptions
from noria.config.tools import ToolOptions


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """How clients reach the engine."""

    TITLE: ClassVar[str] = "Server"

    host: str = option(
        "127.0.0.1",
        "Address to listen on. The default is reached from this machine alone; 0.0.0.0 serves every network "
        "this machine is on, which wants an API key.",
    )
    port: int = option(8000, "TCP port to listen on; 0 takes a free one.", WHOLE, low=0, high=65535)
    api_key: tuple[str, ...] = option(
        (),
        "Key that a client must send as `Authorization: Bearer KEY`. Give it once a key; any of them is "
        "accepted. Prefer the environment name: other users of the machine can read a command line.",
        several=Several.REPEATED,
        fallbacks=("VLLM_API_KEY",),
        secret=True,
        default_words="no key needed",
    )
    api_keys_file: str | None = option(
        None,
        "File of more keys, YAML or JSON: `name: key`, or `name: {key: KEY, weight: 2, max_concurrent: 8, "
        "tokens_per_minute: 60000}`. It is read again whenever it changes; one that cannot be read changes nothing.",
        PATH,
        default_words="no file",
    )
    request_timeout: float | None = option(
        None,
        "Seconds that a request may take which states no time itself (`X-Request-Timeout` or `request_timeout`). When "
        "they are over it ends, waiting or running.",
        REAL,
        low=0,
        low_is_open=True,
        default_words="no limit",
    )
    served_model_name: tuple[str, ...] = option(
        (),
        "Names under which clients may ask for the model; answers bear the first.",
        several=Several.SPREAD,
        default_words="the model as it was asked for",
    )
    max_logprobs: int = option(
        20,
        "Most alternatives a token that a request may ask log-probabilities of; -1 allows the whole vocabulary. "
        "Each one costs time and bytes.",
        WHOLE,
        low=-1,
    )
    uvicorn_log_level: str = option(
        "info",
        "How much the processes that speak HTTP log, a line for each request (info) included.",
        choices=("critical", "error", "warning", "info", "debug", "trace"),
    )
    shutdown_timeout: float = option(
        30.0,
        "Seconds that running requests get to finish after SIGTERM. New ones are refused meanwhile; what has "
        "not ended by then is told so. 0 ends them at once.",
        REAL,
        low=0,
    )
    enable_prompt_tokens_details: bool = option(
        False,
        "Report in `usage` how many prompt tokens came from the prefix cache. It tells a client whether "
        "somebody has sent the same text before.",
        SWITCH,
    )
    sse_keep_alive_interval: float = option(
        15.0,
        "Seconds of silence after which a stream gets a comment line, so that proxies keep the connection. "
        "0 sends none.",
        REAL,
        low=0,
    )
    answers: AnswerOptions = field(default_factory=AnswerOptions)
    connections: ConnectionOptions = field(default_factory=ConnectionOptions)
    limits: LimitOptions = field(default_factory=LimitOptions)
    logs: LogOptions = field(default_factory=LogOptions)
    observing: ObservingOptions = field(default_factory=ObservingOptions)
    processes: ProcessOptions = field(default_factory=ProcessOptions)
    tools: ToolOptions = field(default_factory=ToolOptions)

    def __post_init__(self) -> None:
        check_values(self)


@dataclass(frozen=True, slots=True)
class QueueOptions:
    """How much work a server takes on."""

    TITLE: ClassVar[str] = "Queue"

    max_num_queued_reqs: int | None = option(
        None,
        "Most requests (choices count singly) that may be without their first token. What comes beyond that gets 503 "
        "with Retry-After at once. Higher: bursts are taken in whole, and wait longer.",
        WHOLE,
        low=1,
        default_words="8 times max_num_seqs",
    )
    max_num_queued_tokens: int | None = option(
        None,
        "Most prompt tokens of requests without their first token, likewise.",
        WHOLE,
        low=1,
        default_words="what 600 full steps read, at least four prompts of max_model_len",
    )

    def __post_init__(self) -> None:
        check_values(self)


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """Everything asked of `noria serve`."""

    engine: EngineOptions = field(default_factory=EngineOptions)
    queue: QueueOptions = field(default_factory=QueueOptions)
    server: ServerOptions = field(default_factory=ServerOptions)
