"""What a user may ask of the processes that make up a server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from noria.config.option import REAL, WHOLE, check_values, option


@dataclass(frozen=True, slots=True)
class ProcessOptions:
    """How many there are, and when one of them is given up."""

    TITLE: ClassVar[str] = "Processes"

    api_server_count: int = option(
        1,
        "Processes that speak HTTP, beside the one that computes. One is enough for all but the smallest models on "
        "many cores.",
        WHOLE,
        low=1,
        high=64,
        aliases=("-asc",),
    )
    engine_hang_timeout: float = option(
        9.0,
        "Seconds without progress after which the engine counts as hung: streams are told so, /health says 503. "
        "After half of it no new work is taken, after twice as long the engine is ended and started anew.",
        REAL,
        low=0.1,
    )
    engine_ready_timeout_s: float = option(
        600.0,
        "Seconds that an engine gets to load its model and be ready. One that is not by then is ended: the server with "
        "it at the first start, else another one is started.",
        REAL,
        low=1,
        fallbacks=("VLLM_ENGINE_READY_TIMEOUT_S",),
    )
    api_hang_timeout: float = option(
        30.0,
        "Seconds without a turn of its event loop after which a process that speaks HTTP is ended and started anew; "
        "one that only starts gets as long as the engine.",
        REAL,
        low=1,
    )

    def __post_init__(self) -> None:
        check_values(self)
