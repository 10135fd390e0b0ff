"""A load: which request is sent when, decided before the first is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from noria.bench.arrivals import Ramp, Scaling, arrivals_within, mean_rate, scaled, unit_arrivals
from noria.bench.pieces import Planned
from noria.bench.stats import Values
from noria.bench.workload import Workload
from noria.config.benching import LoadOptions
from noria.config.errors import ConfigError

_DEFAULT_CONCURRENCY = 16
_MOST_UNTIL_CERTAIN = 5000


@dataclass(frozen=True, slots=True)
class Play:
    """requests, by index. due: (instant in seconds, index) in the order of time; in a closed loop all instants are 0
    and a request is due when a place is free. followers: index -> index of the next turn of its conversation, which is
    due when the answer has come. duration_s: nothing is sent later.
    """

    requests: tuple[Planned, ...]
    due: tuple[tuple[float, int], ...]
    followers: dict[int, int]
    is_closed: bool
    max_concurrency: int | None
    duration_s: float | None
    rate: float | None


def num_requests(options: LoadOptions, is_trace: bool) -> int | None:
    """How many to plan; None for all of a trace."""
    if options.requests is not None:
        return options.requests
    if options.until is not None:
        return None if is_trace else _MOST_UNTIL_CERTAIN
    if options.duration is not None and options.rate is not None:
        most = max(options.rate, options.ramp_to or 0.0) * options.duration
        return None if is_trace else int(most + 10 * most**0.5 + 64)
    if options.duration is not None:
        return None if is_trace else 100_000
    return None if is_trace else 1000


def make_play(workload: Workload, options: LoadOptions, seed: int) -> Play:
    """Raises ConfigError."""
    if options.ramp_to is not None and options.rate is None:
        raise ConfigError("ramp_to is where --rate grows to: give --rate too")
    if options.until is not None and not options.slo:
        raise ConfigError(
            "until certain needs limits to be certain of: give --slo, as in --slo ttft:500 tpot:50"
        )
    if workload.times_s is not None:
        return _of_trace(workload, workload.times_s, options, seed)
    followers = followers_of(workload.requests)
    following = set(followers.values())
    firsts = [index for index in range(len(workload.requests)) if index not in following]
    if options.rate is None:
        due = tuple((0.0, index) for index in firsts)
        places = options.max_concurrency or _DEFAULT_CONCURRENCY
        return Play(workload.requests, due, followers, True, places, options.duration, None)
    times = _times(len(firsts), len(firsts) / len(workload.requests), options, seed)
    due = tuple(zip(times.tolist(), firsts, strict=False))
    return Play(
        workload.requests, due, followers, False, options.max_concurrency, options.duration, options.rate
    )


def _times(count: int, share: float, options: LoadOptions, seed: int) -> Values:
    """share: of requests that have an instant of their own; turns that follow add to the rate."""
    assert options.rate is not None
    end = options.ramp_to or options.rate
    ramp = Ramp(options.rate * share, end * share, options.ramp_seconds, options.ramp_shape == "exponential")
    if options.duration is not None:
        return arrivals_within(options.duration, ramp, options.burstiness, seed)[:count]
    return ramp.times(unit_arrivals(count, options.burstiness, seed))


def _of_trace(workload: Workload, times_s: Values, options: LoadOptions, seed: int) -> Play:
    if options.ramp_to is not None or options.burstiness != 1.0:
        raise ConfigError("a trace has instants of its own: --ramp-to and --burstiness do not go with it")
    picks = list(range(len(times_s)))
    rate = mean_rate(times_s)
    if options.rate is not None:
        rate = options.rate
        times_s, picks = scaled(times_s, options.rate, Scaling(options.rate_scaling), seed)
    if options.duration is not None:
        picks = picks[: int(np.searchsorted(times_s, options.duration))]
    requests = tuple(_numbered(workload, picks))
    due = tuple((float(times_s[index]), index) for index in range(len(requests)))
    return Play(requests, due, {}, False, options.max_concurrency, options.duration, rate)


def _numbered(workload: Workload, picks: list[int]) -> Iterator[Planned]:
    for index, pick in enumerate(picks):
        yield replace(workload.requests[pick], index=index)


def followers_of(requests: tuple[Planned, ...]) -> dict[int, int]:
    """index -> index of the next turn of the same conversation."""
    last: dict[str, int] = {}
    followers = {}
    for request in requests:
        if request.session is None:
            continue
        if request.session in last:
            followers[last[request.session]] = request.index
        last[request.session] = request.index
    return followers
