"""What is asked of an engine and what came back; the same for servers and for the in-process driver.

Play = groups that run at once; a group sends its requests in order, at most `concurrency` at a time,
and begins `start_after_s` after the play does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Request:
    """A greedy completion of exactly `max_tokens` tokens: the model's end token is ignored."""

    prompt: str
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Group:
    requests: tuple[Request, ...]
    concurrency: int
    start_after_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Reply:
    """Times are seconds since the play began, as the client saw them.

    token_s: when each token came; tokens that came in one event count once. group and index say which request
    this answers.
    """

    group: int
    index: int
    sent_s: float
    token_s: tuple[float, ...]
    num_prompt: int
    num_output: int
    text: str

    @property
    def ttft_s(self) -> float:
        return self.token_s[0] - self.sent_s

    @property
    def gaps_s(self) -> list[float]:
        return [after - before for before, after in zip(self.token_s, self.token_s[1:], strict=False)]

    @property
    def end_s(self) -> float:
        return self.token_s[-1]

    def as_json(self) -> dict[str, Any]:
        raw = asdict(self)
        raw["token_s"] = [round(moment, 5) for moment in self.token_s]
        raw["sent_s"] = round(self.sent_s, 5)
        return raw


# Called with each reply's count as it ends, for progress.
OnDone = Callable[[], None]
Play = Sequence[Group]


class EngineFailed(Exception):
    """An engine did not start, refused a request or broke off; the message says which and why."""
