"""What a user may ask of the server's log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from noria.config.option import SWITCH, WHOLE, Several, check_values, option

# Of each line in the log of a server: when, how bad, and which of its processes.
LINE_HEAD = "%(asctime)s %(levelname)s %(process)d "


@dataclass(frozen=True, slots=True)
class LogOptions:
    """What is logged of requests. Their texts are not, unless asked for."""

    TITLE: ClassVar[str] = "Logs"

    disable_uvicorn_access_log: bool = option(False, "Log no line for each HTTP request.", SWITCH)
    disable_access_log_for_endpoints: tuple[str, ...] = option(
        (),
        "Paths whose requests get no such line, as /health /metrics.",
        several=Several.SPREAD,
        default_words="none",
    )
    enable_log_requests: bool = option(
        False, "Log what each request asks: its sampling parameters and its prompt.", SWITCH
    )
    max_log_len: int | None = option(
        None,
        "Characters of a prompt that are logged.",
        WHOLE,
        low=0,
        default_words="all",
    )

    def __post_init__(self) -> None:
        check_values(self)
