"""What lies between a client and the engine: HTTP, reading prompts, writing answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from noria.config.errors import ConfigError

MIN_REQUESTS = 20  # fewer say nothing
_ROUNDS = 8  # of reweighting
_LEAST_S = 1e-4  # of a deviation that matters


@dataclass(frozen=True, slots=True)
class Front:
    """Seconds. request_s: from sending to the engine's acceptance; prompt_token_s: more for each token of the prompt.
    answer_s: from the end of the step that made a token to when the client has it.
    """

    request_s: float = 0.0
    prompt_token_s: float = 0.0
    answer_s: float = 0.0

    def way_in_s(self, num_prompt: int) -> float:
        return self.request_s + self.prompt_token_s * num_prompt


NO_FRONT = Front()


@dataclass(frozen=True, slots=True)
class Passage:
    """One request from its client's and the engine's side, on one clock.

    made_s: the end of the step of its first token. received_s: when the client had that token.
    """

    num_prompt: int
    sent_s: float
    accepted_s: float
    made_s: float
    received_s: float


def fit_front(passages: Sequence[Passage]) -> Front:
    """A line through the ways in by prompt length, without negative parts, and the middle of the ways out.

    What was held up by somebody else weighs little (least absolute deviations, by reweighting). Raises ConfigError for
    too few.
    """
    if len(passages) < MIN_REQUESTS:
        raise ConfigError(
            f"{len(passages)} requests are too few to learn what HTTP takes; at least {MIN_REQUESTS} are needed"
        )
    lengths = np.array([one.num_prompt for one in passages], dtype=np.float64)
    way_in_s = np.array([one.accepted_s - one.sent_s for one in passages])
    way_out_s = np.array([one.received_s - one.made_s for one in passages])
    weights = np.ones(len(passages))
    slope = 0.0
    for _ in range(_ROUNDS):
        slope = max(0.0, float(np.polyfit(lengths, way_in_s, 1, w=np.sqrt(weights))[0]))
        level = float(np.median(way_in_s - slope * lengths))
        weights = 1 / np.maximum(np.abs(way_in_s - level - slope * lengths), _LEAST_S)
    level = float(np.median(way_in_s - slope * lengths))
    return Front(max(0.0, level), slope, max(0.0, float(np.median(way_out_s))))
