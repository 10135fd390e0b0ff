"""Who a request belongs to, and what that one may take."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tenant:
    """Somebody whose requests share the engine with those of others: the owner of an API key.

    weight: the share of the engine under the fair policy, relative to others who want it too; at least 1.
    max_concurrent: user's requests inside at once. tokens_per_minute: prompt and output tokens, a minute's worth at
    most at once. None: no limit.
    """

    name: str = ""
    weight: int = 1
    max_concurrent: int | None = None
    tokens_per_minute: int | None = None


ANYBODY = Tenant()  # where nobody needs a key
