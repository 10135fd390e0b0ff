"""How a request is to be treated among others: whose it is, how urgent, and until when."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Protocol

from starlette.requests import Request

from noria.config.tenant import ANYBODY, Tenant
from noria.server.errors import ApiError

TIMEOUT_HEADER = "x-request-timeout"
TIMEOUT_FIELD = "request_timeout"


class TermsFields(Protocol):
    """The fields of a body that state them."""

    priority: int | None
    cache_salt: str | None
    request_timeout: float | None


@dataclass(frozen=True, slots=True)
class Terms:
    """priority: lower goes first under the priority policy. cache_salt: prefixes are shared with the same salt only.

    deadline_s: of time.monotonic, None for no deadline. time_s: the seconds that it had when it came.
    """

    priority: int = 0
    cache_salt: str = ""
    tenant: Tenant = ANYBODY
    deadline_s: float | None = None
    time_s: float | None = None

    def timeout_s(self) -> float | None:
        """Seconds left; none or fewer when the deadline has passed."""
        return None if self.deadline_s is None else self.deadline_s - time.monotonic()


PLAIN_TERMS = Terms()


def terms_of(request: Request, fields: TermsFields, default_timeout_s: float | None) -> Terms:
    """The deadline counts from the request's arrival: the shortest time stated, else the server's own.

    Raises ApiError for a time that is none.
    """
    by_header = time_of_header(request.headers.get(TIMEOUT_HEADER))
    stated = [one for one in (by_header, _time_of_field(fields)) if one is not None]
    timeout_s = min(stated, default=default_timeout_s)
    arrived_s: float = request.state.arrived_s
    return Terms(
        fields.priority or 0,
        fields.cache_salt or "",
        getattr(request.state, "tenant", ANYBODY),
        None if timeout_s is None else arrived_s + timeout_s,
        timeout_s,
    )


def time_of_header(text: str | None) -> float | None:
    """Seconds that TIMEOUT_HEADER states. Raises ApiError for a text that is no time."""
    if text is None:
        return None
    try:
        return _checked(float(text), TIMEOUT_HEADER)
    except ValueError:
        raise ApiError(f"{TIMEOUT_HEADER} must be a number of seconds", param=TIMEOUT_HEADER) from None


def _time_of_field(fields: TermsFields) -> float | None:
    timeout_s = fields.request_timeout
    return None if timeout_s is None else _checked(timeout_s, TIMEOUT_FIELD)


def _checked(timeout_s: float, name: str) -> float:
    if not 0 < timeout_s < math.inf:
        raise ApiError(f"{name} must be a number of seconds above 0", param=name)
    return timeout_s
