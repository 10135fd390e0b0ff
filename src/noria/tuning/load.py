"""The load that every setting is put under: one workload, its instants at rate 1 stretched to any rate."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import orjson

from noria.bench.play import Play, make_play
from noria.bench.workload import Workload, make_workload
from noria.config.benching import LoadOptions, WorkloadOptions
from noria.config.errors import ConfigError

_WARM_UP_SHARE, _MOST_WARM_UP = 0.1, 20


# A load that is over before a queue can grow keeps any limit: it has to last for so many times the limit on the TTFT.
LEAST_SPANS = 10.0


@dataclass(frozen=True, slots=True)
class TunedLoad:
    """A workload at any rate: two rates, and two settings, differ in nothing of the load but the rate."""

    workload: Workload
    load: LoadOptions
    seed: int

    def play(self, rate: float, most: int, seed: int | None = None) -> Play:
        """rate: requests a second. seed: draws other instants than the load's own. Raises ConfigError."""
        requests = self.workload.requests[:most]
        times_s = None if self.workload.times_s is None else self.workload.times_s[:most]
        part = replace(self.workload, requests=requests, times_s=times_s)
        asked = replace(self.load, rate=rate, requests=most)
        return make_play(part, asked, self.seed if seed is None else seed)

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
    return play.due[num_warm_up(len(play.requests))][0] if play.due else 0.0


def num_warm_up(most: int) -> int:
    return min(_MOST_WARM_UP, math.floor(_WARM_UP_SHARE * most))


def covering_length(lengths: Sequence[int] | np.ndarray, share: float, block_size: int) -> int:
    """The least multiple of the block size that this share of requests fit into."""
    ordered = np.sort(np.asarray(lengths))
    needed = int(ordered[max(0, math.ceil(share * len(ordered)) - 1)])
    return block_size * math.ceil(needed / block_size)
