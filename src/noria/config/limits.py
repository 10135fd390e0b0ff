"""What a user may ask of the bounds on requests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from noria.config.option import REAL, SIZE, WHOLE, check_values, option


@dataclass(frozen=True, slots=True)
class LimitOptions:
    """Bounds that keep one request or one connection from taking the server. What is above is refused."""

    TITLE: ClassVar[str] = "Limits"

    max_request_body_size: int = option(
        32 * 2**20,
        "Most bytes of a request's body.",
        SIZE,
        low=1024,
        fallbacks=("VLLM_HTTP_MAX_REQUEST_BODY_SIZE",),
        default_words="32MiB",
    )
    max_header_size: int = option(
        4 * 2**20,
        "Most bytes of a request's headers.",
        SIZE,
        low=1024,
        aliases=("--h11-max-incomplete-event-size",),
        default_words="4MiB",
    )
    max_header_count: int = option(
        256, "Most headers of a request.", WHOLE, low=16, aliases=("--h11-max-header-count",)
    )
    max_json_depth: int = option(128, "Most objects and lists inside one another in a body.", WHOLE, low=8)
    max_n: int = option(
        16384,
        "Most outputs of a request: n times its prompts.",
        WHOLE,
        low=1,
        high=16384,
        fallbacks=("VLLM_MAX_N_SEQUENCES",),
    )
    max_prompts: int = option(1024, "Most prompts of a completion request.", WHOLE, low=1)
    max_inputs: int = option(
        2048,
        "Most texts of a request for embeddings, classes or scores; to rerank, most documents.",
        WHOLE,
        low=1,
    )
    max_stop_strings: int = option(
        64, "Most stop strings of a request.", WHOLE, low=0, fallbacks=("VLLM_MAX_STOP_STRINGS",)
    )
    http_timeout_keep_alive: int = option(
        75,
        "Seconds that a connection stays open without a request.",
        WHOLE,
        low=1,
        fallbacks=("VLLM_HTTP_TIMEOUT_KEEP_ALIVE",),
    )
    request_head_timeout: float = option(
        60.0,
        "Seconds within which a request's headers have to come, counted from its first byte, or from the opening of "
        "its connection. Then 408, and the connection ends.",
        REAL,
        low=0,
        low_is_open=True,
    )
    request_body_timeout: float = option(
        60.0,
        "Seconds within which a request's body has to come, and one more for each KiB of it that is there. Then 408, "
        "and the connection ends.",
        REAL,
        low=0,
        low_is_open=True,
    )
    send_timeout: float = option(
        60.0,
        "Seconds for which a client may read nothing of what waits for it. Then its connection is cut.",
        REAL,
        low=0,
        low_is_open=True,
    )
    max_unread_tokens: int = option(
        4096,
        "Most tokens that may wait for the client of a stream to read, for each of its outputs and beside what its "
        "connection holds. Then the stream is cancelled and its connection cut.",
        WHOLE,
        low=1,
    )
    chat_template_timeout: float = option(
        30.0, "Seconds that a chat template gets to render a request.", REAL, low=0, low_is_open=True
    )

    def __post_init__(self) -> None:
        check_values(self)
