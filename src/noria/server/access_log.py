"""Which HTTP requests get a line in the access log, and which a line that tells what they ask."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import MISSING, Field, fields
from typing import Any

from noria.config.logs import LogOptions
from noria.server.pool_turn import PoolOrder
from noria.server.turn import TurnRequest
from noria.tokenize.tokenizer import Tokenizer

logger = logging.getLogger("noria.server")


class PathFilter(logging.Filter):
    """Drops the web server's lines about requests to some paths."""

    def __init__(self, paths: Collection[str]) -> None:
        super().__init__()
        self._paths = frozenset(paths)

    def filter(self, record: logging.LogRecord) -> bool:
        # The web server logs (client address, method, path with query, HTTP version, status).
        arguments = record.args
        if not isinstance(arguments, tuple) or len(arguments) < 3:
            return True
        return str(arguments[2]).partition("?")[0] not in self._paths


def _stated(params: Any) -> str:
    """Of a dataclass of parameters, what differs from the defaults."""
    told = [
        f"{field.name}={value!r}"
        for field in fields(params)
        if (value := getattr(params, field.name)) != _default(field)
    ]
    return ", ".join(told) or "nothing stated"


def _default(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def request_log(options: LogOptions, tokenizer: Tokenizer) -> Callable[[TurnRequest | PoolOrder], None]:
    """What is called with each request before it is submitted: it logs it, or does nothing."""
    if not options.enable_log_requests:
        return lambda request: None

    def log(request: TurnRequest | PoolOrder) -> None:
        for number, (prompt, params) in enumerate(zip(request.prompts, request.params, strict=True)):
            text = tokenizer.decode(prompt, skip_special_tokens=False)[: options.max_log_len]
            logger.info(
                "request %s, prompt %d: %d tokens, %s, priority %d, text %r",
                request.request_id,
                number,
                len(prompt),
                _stated(params),
                request.terms.priority,
                text,
            )

    return log
