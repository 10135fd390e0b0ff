"""The load that every setting is put under: one workload, its instants at rate 1 stretched to any rate."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import orjson

from noria.bench.arrivals import mean_rate
from noria.bench.pieces import Planned
from noria.bench.play import Play, make_play
from noria.bench.workload import Workload, make_workload
from noria.config.benching import LoadOptions, WorkloadOptions
from noria.config.errors import ConfigError

_WARM_UP_SHARE, _MOST_WARM_UP = 0.1, 20
_LONGER = 1.25  # times as many requests, where a load would be over too soon
# A load that is over before a queue can grow keeps any limit: it has to last for so many times the limit on the TTFT.
LEAST_SPANS = 10.0


@dataclass(frozen=True, slots=True)
class TunedLoad:
    """A workload at any rate: two rates, and two settings, differ in nothing of the load but the rate."""

    workload: Workload
    load: LoadOptions
    seed: int

    def play(self, rate: float, most: int) -> Play:
        """So many requests at `rate` a second; where the workload has fewer, it begins anew. Raises ConfigError."""
        asked = replace(self.load, rate=rate, requests=most)
        return make_play(self._part(most), asked, self.seed)

    def lasting_play(self, rate: float, most: int, limit_s: float) -> Play:
        """Of more requests than `most` where those would be over too soon to tell of a limit on the TTFT."""
        play = self.play(rate, most)
        while play.due and play.due[-1][0] - begin_s(play) < least_s(limit_s):
            most = math.ceil(most * _LONGER)
            play = self.play(rate, most)
        return play

    def rounds(self, num_sent: int) -> int:
        """How often the workload has begun by then."""
        return math.ceil(num_sent / len(self.workload.requests))

    def _part(self, most: int) -> Workload:
        own, times_s = self.workload.requests, self.workload.times_s
        rounds = range(self.rounds(most))
        requests = [_again(one, number, len(own)) for number in rounds for one in own]
        if times_s is not None:
            period_s = len(own) / mean_rate(times_s)
            times_s = np.concatenate([times_s + number * period_s for number in rounds])[:most]
        return replace(self.workload, requests=tuple(requests[:most]), times_s=times_s)

    @property
    def lengths(self) -> np.ndarray:
        """Of each request, prompt and answer together."""
        return np.array([(one.num_prompt or 0) + one.num_output for one in self.workload.requests])

    def hash(self) -> str:
        """Of lengths, what prompts share, and instants: the same load, the same hash."""
        rows = [
            (one.num_output, one.session, [(piece.name, piece.num_tokens) for piece in one.pieces])
            for one in self.workload.requests
        ]
        times = None if self.workload.times_s is None else self.workload.times_s.tolist()
        content = orjson.dumps([rows, times, self.load.burstiness, self.load.rate_scaling, self.seed])
        return hashlib.sha256(content).hexdigest()[:16]


def _again(one: Planned, number: int, count: int) -> Planned:
    """In a later round of `count` requests: the same lengths, and what was shared within a round is, in new text."""
    if number == 0:
        return one
    pieces = tuple(replace(piece, name=f"{piece.name} again {number}") for piece in one.pieces)
    session = None if one.session is None else f"{one.session} again {number}"
    return replace(one, index=one.index + number * count, pieces=pieces, session=session)


def make_load(options: WorkloadOptions, load: LoadOptions, most: int, max_model_len: int) -> TunedLoad:
    """max_model_len: what the model can do; longer requests are cut to it. Raises ConfigError."""
    workload = make_workload(options, most, max_model_len, None)
    if any(one.num_prompt is None for one in workload.requests):
        raise ConfigError(
            "prompts that are texts have a length only for a tokenizer: tune on a trace of lengths"
        )
    return TunedLoad(workload, load, options.bench_seed)


def begin_s(play: Play) -> float:
    """From when on requests count: the first ones meet an empty server, which is too kind."""
    return play.due[num_warm_up(play)][0] if play.due else 0.0


def num_warm_up(play: Play) -> int:
    """Of those that have an instant of their own: turns that follow come whenever the one before was answered."""
    return len(play.due) - num_after_warm_up(len(play.due))


def with_warm_up(count: int) -> int:
    """The fewest requests of a load of which so many count."""
    return count + min(_MOST_WARM_UP, math.floor(_WARM_UP_SHARE / (1 - _WARM_UP_SHARE) * count))


def num_after_warm_up(count: int) -> int:
    """Of so many requests, those that count."""
    return count - min(_MOST_WARM_UP, math.floor(_WARM_UP_SHARE * count))


def least_s(limit_s: float) -> float:
    """How long a load has to last, after its warm-up, before it can keep this limit on the TTFT."""
    return LEAST_SPANS * limit_s if limit_s < math.inf else 0.0


def covering_length(lengths: Sequence[int] | np.ndarray, share: float, block_size: int) -> int:
    """The least multiple of the block size that this share of requests fit into."""
    ordered = np.sort(np.asarray(lengths))
    needed = int(ordered[max(0, math.ceil(share * len(ordered)) - 1)])
    return block_size * math.ceil(needed / block_size)
