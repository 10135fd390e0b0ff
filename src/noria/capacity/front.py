"""What a client waits for beside the engine: HTTP, reading prompts, writing answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from noria.bench.outcome import Outcome
from noria.config.errors import ConfigError
from noria.engine.messages import RequestRecord

MIN_REQUESTS = 20  # fewer say nothing
_ROUNDS = 8  # of reweighting
_LEAST_S = 1e-4  # of a deviation that matters
_AHEAD = 64  # records among which a request is looked for: others may have been accepted in between


@dataclass(frozen=True, slots=True)
class Front:
    """Seconds, of both ways together: request_s of every request, prompt_token_s of each token of its prompt."""

    request_s: float = 0.0
    prompt_token_s: float = 0.0

    def seconds(self, num_prompt: int) -> float:
        return self.request_s + self.prompt_token_s * num_prompt


NO_FRONT = Front()


@dataclass(frozen=True, slots=True)
class Passage:
    """One request. beside_s: how much longer its client waited for the first token than the engine took to make it."""

    num_prompt: int
    beside_s: float


def passages(
    seen: Sequence[Outcome], records: Sequence[RequestRecord], step_ends_s: Mapping[float, float]
) -> list[Passage]:
    """Those that both sides tell of. Their clocks may be different ones: requests are the same if they are alike in
    length and come in the same order.

    step_ends_s: by the instant at which a step's results were there, when the next one began.
    """
    accepted = sorted(records, key=lambda record: record.accepted_s)
    found = []
    for one in sorted(seen, key=lambda one: one.sent_s):
        lengths = (one.num_prompt, one.num_output)
        for place, record in enumerate(accepted[:_AHEAD]):
            if (record.num_prompt_tokens, record.num_output_tokens) != lengths:
                continue
            end_s = step_ends_s.get(record.first_token_s or 0.0)
            if one.is_ok and end_s is not None:
                found.append(Passage(one.num_prompt, one.ttft_s - (end_s - record.accepted_s)))
            del accepted[: place + 1]
            break
    return found


def fit_front(found: Sequence[Passage]) -> Front:
    """A line by prompt length, without negative parts.

    What was held up by somebody else weighs little (least absolute deviations, by reweighting). Raises ConfigError for
    too few.
    """
    if len(found) < MIN_REQUESTS:
        raise ConfigError(
            f"{len(found)} requests that client and engine both tell of are too few to learn what HTTP takes; at "
            f"least {MIN_REQUESTS} are needed"
        )
    lengths = np.array([one.num_prompt for one in found], dtype=np.float64)
    beside_s = np.array([one.beside_s for one in found])
    weights = np.ones(len(found))
    slope = level = 0.0
    for _ in range(_ROUNDS):
        slope = max(0.0, float(np.polyfit(lengths, beside_s, 1, w=np.sqrt(weights))[0]))
        level = float(np.median(beside_s - slope * lengths))
        weights = 1 / np.maximum(np.abs(beside_s - level - slope * lengths), _LEAST_S)
    return Front(max(0.0, level), slope)
