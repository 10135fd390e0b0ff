"""Which HTTP requests get a line in the access log, and which a line that tells what they ask."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import MISSING, Field, fields
from typing import Any

from noria.config.logs import LogOptions
from noria.server.pool_turn import PoolOrder
from noria.server.turn import TurnRequest
from noria.tokenize.tokenizer import Tokenizer

logger = logging.getLogger("noria.server")

_TELL_EVERY_S = 1.0  # lines about refusals


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


class RefusalLines:
    """Lines about refusals: the first like any request's, then one a second for all others, which tells how many.

    For the event loop's thread.
    """

    def __init__(self) -> None:
        self._log = logging.getLogger("uvicorn.access")
        self._untold: Counter[tuple[str, str, int]] = Counter()
        self._next: asyncio.TimerHandle | None = None

    def add(self, client: str, path: str, http_version: str, status: int) -> None:
        if self._next is not None:
            self._untold[path, http_version, status] += 1
            return
        self._write(client, path, http_version, status)
        self._wait()

    def flush(self) -> None:
        """Tell what has not been told."""
        if self._next is not None:
            self._next.cancel()
            self._next = None
        untold, self._untold = self._untold, Counter()
        for (path, http_version, status), num in untold.items():
            self._write(f"{num} more", path, http_version, status)

    def _wait(self) -> None:
        self._next = asyncio.get_running_loop().call_later(_TELL_EVERY_S, self._tell)

    def _tell(self) -> None:
        is_burst = bool(self._untold)
        self.flush()
        if is_burst:
            self._wait()

    def _write(self, client: str, path: str, http_version: str, status: int) -> None:
        self._log.info('%s - "%s %s HTTP/%s" %d', client, "POST", path, http_version, status)


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
