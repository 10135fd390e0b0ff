"""What became of one request: the raw facts that every figure is computed from."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Status(str, Enum):
    OK = "ok"
    ERROR = "error"  # the server said so, or the connection broke
    REJECTED = "rejected"  # refused for now (429, 503)
    TIMEOUT = "timeout"
    CUT = "cut"  # the run ended first; no fault of the server


@dataclass(frozen=True, slots=True)
class Outcome:
    """Instants are seconds since the load began.

    arrival_s: when it was meant to be sent. sent_s: when its first byte was. chunk_s, chunk_tokens: of every piece of
    the answer that brought tokens, when it came and how many. end_s: when the answer's end came.
    num_prompt, num_output: as the server counted; num_planned: of the prompt, None where nobody knew it before.
    queue_wait_s: from the engine's acceptance to being scheduled, where the engine is in process.
    """

    index: int
    arrival_s: float
    sent_s: float
    chunk_s: tuple[float, ...]
    chunk_tokens: tuple[int, ...]
    end_s: float
    status: Status
    num_prompt: int
    num_output: int
    num_planned: int | None
    num_asked: int
    num_cached: int | None = None
    queue_wait_s: float | None = None
    num_preemptions: int | None = None
    error: str = ""
    text: str = ""
    session: str | None = None
    turn: int = 0

    @property
    def is_ok(self) -> bool:
        return self.status is Status.OK

    @property
    def send_lag_s(self) -> float:
        return self.sent_s - self.arrival_s

    @property
    def first_s(self) -> float:
        """When the first token came. Only where one did."""
        return self.chunk_s[0]

    @property
    def last_s(self) -> float:
        return self.chunk_s[-1]

    @property
    def ttft_s(self) -> float:
        return self.first_s - self.sent_s

    @property
    def ttft_slo_s(self) -> float:
        return self.first_s - self.arrival_s

    @property
    def e2el_s(self) -> float:
        return self.end_s - self.sent_s

    @property
    def e2el_slo_s(self) -> float:
        return self.end_s - self.arrival_s

    @property
    def tpot_s(self) -> float | None:
        """Seconds a token after the first; None for a single token."""
        return (self.last_s - self.first_s) / (self.num_output - 1) if self.num_output > 1 else None

    def chunk_gaps_s(self) -> list[float]:
        return [after - before for before, after in zip(self.chunk_s, self.chunk_s[1:], strict=False)]

    def token_gaps_s(self) -> list[float]:
        """A gap for every token after those of the first chunk: one before k tokens counts k times, as a k-th each."""
        gaps = zip(self.chunk_gaps_s(), self.chunk_tokens[1:], strict=True)
        return [gap / count for gap, count in gaps for _ in range(count)]
