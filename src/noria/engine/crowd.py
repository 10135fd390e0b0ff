"""Whether a request is taken, as a pure function of some numbers: what is inside, and what is foretold.

The engine's intake decides by it. Who refuses a request before the engine has seen it decides by the same numbers, of a
moment ago, and by the least that the request can turn out to be: a greater one would be refused as well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from noria.config.engine import QueueConfig
from noria.config.errors import OverloadError, Refusal
from noria.core.acceptance import max_known_tokens
from noria.engine.forecast import Ahead, Forecast
from noria.engine.messages import EngineRequest
from noria.engine.retry import retry_after

# Of a request's time, what may be foretold to pass before it ends. What is taken at the edge and then comes late was
# computed for nothing, and forecasts are not exact.
USABLE_TIME = 0.75
# Of the time that its own work is foretold to take, what must be left when its turn comes.
NEEDED_TIME = 1.1


@dataclass(frozen=True, slots=True)
class Work:
    """What one user's request asks for. num_prompt_tokens: to be read for all its sequences.

    output: tokens expected of each sequence; infinite where they are not known.
    """

    num_seqs: int
    num_prompt_tokens: int
    output: float


# No request asks for less, whatever it turns out to be.
LEAST_WORK = Work(1, 1, math.inf)


@dataclass(frozen=True, slots=True)
class Charged:
    """What is queued, as it counts for others: see `most_charged`."""

    num_seqs: int
    num_tokens: int


def most_charged(limit: int | None) -> float:
    """Of what one user's request has queued, as much counts against a limit of the queue. A body of a thousand texts,
    let in when nothing waited, may take more than the queue holds; it leaves half of it to others all the same.
    """
    return math.inf if limit is None else max(1, limit // 2)


@dataclass(frozen=True, slots=True)
class Crowd:
    """What a request meets in an engine.

    num_queued, num_queued_tokens: sequences without a first token, and what is to be read of their prompts.
    num_live: all sequences inside; expected_output: tokens that they are expected to generate, all together.
    limits: of the queue. max_model_len: prompt and output together. shares_prompts: whether copies of a prompt are read
    once. charged: of what is queued, what counts against limits.
    """

    num_queued: int
    num_queued_tokens: int
    num_live: int
    expected_output: float
    limits: QueueConfig
    max_model_len: int
    shares_prompts: bool
    forecast: Forecast
    charged: Charged

    @property
    def is_waited_in(self) -> bool:
        """Whether a request can be refused at all: something would come before it."""
        if self.num_queued > 0:
            return True
        outlook = self.forecast.outlook(self._ahead(), LEAST_WORK.num_seqs, 0, 0.0)
        return outlook is not None and outlook.wait_s > 0

    def work_of(self, requests: Sequence[EngineRequest]) -> Work:
        """Of the sequences of one user's request, at least one. Raises RequestError as `max_known_tokens`."""
        num_tokens = sum(self.num_read(index, request) for index, request in enumerate(requests))
        return Work(len(requests), num_tokens, max(map(self.output_of, requests)))

    def num_read(self, index: int, request: EngineRequest) -> int:
        """Prompt tokens to be read for the sequence of that index: the copies of a prompt, n in a row, share them."""
        is_copy = self.shares_prompts and index % request.params.n
        return 0 if is_copy else len(request.prompt_token_ids)

    def output_of(self, request: EngineRequest) -> float:
        """Tokens that are expected of a sequence."""
        num_prompt = len(request.prompt_token_ids)
        most = max_known_tokens(num_prompt, request.params, self.max_model_len) - num_prompt
        return self.forecast.expected_output(most, request.params.runs_to_limit)

    def admit(self, work: Work, timeout_s: float | None) -> float:
        """Within how many seconds a request must begin that has timeout_s, or would be computed for nothing.

        Raises OverloadError for one that is too much for now. Then it does so for each that has more prompt tokens too,
        and, where its output is infinite, for each with more sequences, whatever their output.
        """
        self._check_queue(work)
        return math.inf if timeout_s is None else self._check_deadline(work, timeout_s)

    def _check_queue(self, work: Work) -> None:
        """Where nothing is queued anything may come: what is larger than the queue would otherwise never be served."""
        if not self.num_queued:
            return
        most_requests, most_tokens = self.limits.max_num_queued_reqs, self.limits.max_num_queued_tokens
        excess = excess_tokens = 0
        if most_requests is not None:
            excess = self.charged.num_seqs + work.num_seqs - most_requests
        if most_tokens is not None:
            excess_tokens = self.charged.num_tokens + work.num_prompt_tokens - most_tokens
        if excess <= 0 and excess_tokens <= 0:
            return
        room_s = self._room_s(excess, excess_tokens)
        if excess > 0:
            text = (
                f"{self.num_queued} requests wait for their first token; this server queues {most_requests}."
            )
            raise OverloadError(text, Refusal.QUEUED_REQUESTS, retry_after(room_s))
        text = f"{self.num_queued_tokens} prompt tokens wait to be read; this server queues {most_tokens}."
        raise OverloadError(text, Refusal.QUEUED_TOKENS, retry_after(room_s))

    def _room_s(self, excess: int, excess_tokens: int) -> float:
        """Until neither is too much any more; what is queued and does not count has to be read first."""
        uncounted = self.num_queued - self.charged.num_seqs
        uncounted_tokens = self.num_queued_tokens - self.charged.num_tokens
        return self.forecast.room_s(
            min(excess + uncounted, self.num_queued) if excess > 0 else 0,
            min(excess_tokens + uncounted_tokens, self.num_queued_tokens) if excess_tokens > 0 else 0,
            self._ahead(),
        )

    def _check_deadline(self, work: Work, timeout_s: float) -> float:
        """Refuse a request that the queue makes late: what is ahead and its own work are foretold to take more than
        USABLE_TIME of its time, and its answer alone is not. One that asks for a longer answer than its time holds is
        let in, for what it gets of it, unless its time is foretold to be over before it begins.
        """
        outlook = self.forecast.outlook(self._ahead(), work.num_seqs, work.num_prompt_tokens, work.output)
        if outlook is None:
            return timeout_s
        usable_s = USABLE_TIME * timeout_s
        own_s = outlook.prompt_s + outlook.answer_s if outlook.answer_s <= usable_s else 0.0
        # A prompt that alone takes too long is not the queue's fault.
        needed_s = outlook.wait_s + min(own_s, usable_s)
        if needed_s <= usable_s:
            return timeout_s - NEEDED_TIME * own_s if own_s <= usable_s else timeout_s
        text = f"This request has {timeout_s:.3g} s; about {outlook.wait_s:.3g} s would pass before its turn came"
        if own_s:
            text += f" and {own_s:.3g} s until its answer was whole"
        raise OverloadError(f"{text}.", Refusal.DEADLINE, retry_after(needed_s - usable_s))

    def _ahead(self) -> Ahead:
        mean_output = self.expected_output / self.num_live if self.num_live else 0.0
        return Ahead(self.num_live, self.num_queued_tokens, mean_output)
