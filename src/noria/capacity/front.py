"""What a client waits for beside the engine: HTTP, reading prompts, writing answers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from noria.bench.outcome import Outcome
from noria.config.errors import ConfigError
from noria.engine.messages import RequestRecord

MIN_REQUESTS = 20  # fewer say nothing
_ALONE_S = 0.03  # between two requests that do not meet in the API process
_ROUNDS = 8  # of reweighting
_LEAST_S = 1e-4  # of a deviation that matters
_CHANCE = 3.0  # standard errors: a slope within so many may as well be none
_NORMAL = 1.4826  # standard deviation of normal deviations of a median size of one
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
    """One request. beside_s: how much longer its client waited for the first token than the engine took to make it.
    is_alone: no other was sent at about the same time.
    """

    num_prompt: int
    beside_s: float
    is_alone: bool


def passages(
    seen: Sequence[Outcome], records: Sequence[RequestRecord], step_ends_s: Mapping[float, float]
) -> list[Passage]:
    """Those that both sides tell of. Their clocks may be different ones: requests are the same if they are alike in
    length and come in the same order.

    step_ends_s: by the instant at which a step's results were there, when the next one began.
    """
    accepted = sorted(records, key=lambda record: record.accepted_s)
    sent = sorted(seen, key=lambda one: one.sent_s)
    found = []
    for one, is_alone in zip(sent, _are_alone([one.sent_s for one in sent]), strict=True):
        lengths = (one.num_prompt, one.num_output)
        for place, record in enumerate(accepted[:_AHEAD]):
            if (record.num_prompt_tokens, record.num_output_tokens) != lengths:
                continue
            end_s = step_ends_s.get(record.first_token_s or 0.0)
            if one.is_ok and end_s is not None:
                beside_s = one.ttft_s - (end_s - record.accepted_s)
                found.append(Passage(one.num_prompt, beside_s, is_alone))
            del accepted[: place + 1]
            break
    return found


def _are_alone(sent_s: Sequence[float]) -> list[bool]:
    """By instants in their order."""
    gaps_s = np.diff([-np.inf, *sent_s, np.inf])
    return [bool(alone) for alone in np.minimum(gaps_s[:-1], gaps_s[1:]) > _ALONE_S]


def fit_front(found: Sequence[Passage]) -> Front:
    """A line by prompt length, without negative parts, and level where the lengths differ too little to tell a slope.

    Of those that were sent alone, where they are enough: a closed loop sends several at once when a step ends several
    answers, and they wait for each other in the API process. What was held up by somebody else all the same weighs
    little (least absolute deviations, by reweighting). Raises ConfigError for too few.
    """
    if len(found) < MIN_REQUESTS:
        raise ConfigError(
            f"{len(found)} requests that client and engine both tell of are too few to learn what HTTP takes; at "
            f"least {MIN_REQUESTS} are needed"
        )
    alone = [one for one in found if one.is_alone]
    chosen = alone if len(alone) >= MIN_REQUESTS else found
    lengths = np.array([one.num_prompt for one in chosen], dtype=np.float64)
    beside_s = np.array([one.beside_s for one in chosen])
    slope = _slope(lengths, beside_s)
    return Front(max(0.0, float(np.median(beside_s - slope * lengths))), slope)


def _slope(lengths: np.ndarray, beside_s: np.ndarray) -> float:
    """Seconds a token. 0 where it is not told from chance: a guess would be multiplied by the longest prompt."""
    spread = float(np.sum((lengths - lengths.mean()) ** 2))
    if spread == 0:
        return 0.0
    weights = np.ones(len(lengths))
    slope = 0.0
    deviations = beside_s
    for _ in range(_ROUNDS):
        slope = max(0.0, float(np.polyfit(lengths, beside_s, 1, w=np.sqrt(weights))[0]))
        level = float(np.median(beside_s - slope * lengths))
        deviations = np.abs(beside_s - level - slope * lengths)
        weights = 1 / np.maximum(deviations, _LEAST_S)
    error = _NORMAL * float(np.median(deviations)) / math.sqrt(spread)
    return slope if slope > _CHANCE * error else 0.0
