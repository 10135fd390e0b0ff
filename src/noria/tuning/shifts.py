"""What the choice is worth where the load is a little other than stated: by a fifth, one thing at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from noria.bench.pieces import Piece, Planned
from noria.capacity.model_file import Calibration
from noria.tuning.explore import Explorer
from noria.tuning.limits import Limits
from noria.tuning.load import TunedLoad
from noria.tuning.max_rate import Ended
from noria.tuning.setting import Setting

_MORE, _LESS = 1.2, 0.8
_ANSWER = "assistant"  # the role of a piece that was an answer
_PRECISION, _MOST_PROBES = 0.05, 6


@dataclass(frozen=True, slots=True)
class Shifted:
    """A load in words. ratio: the chosen setting's highest rate there, by its rate under the stated load. regret: what
    is lost there beside the best of those that were compared, as a share; best: which that is. too_long: share of its
    requests that the chosen setting takes none of."""

    words: str
    ratio: float
    regret: float
    best: Setting
    too_long: float = 0.0


def shifted_loads(load: TunedLoad) -> Iterator[tuple[str, TunedLoad]]:
    for factor, word in ((_MORE, "longer"), (_LESS, "shorter")):
        yield f"prompts 20 % {word}", _with_lengths(load, factor, 1.0)
        yield f"answers 20 % {word}", _with_lengths(load, 1.0, factor)
    if load.workload.times_s is None:
        for factor, word in ((_LESS, "burstier"), (_MORE, "more even")):
            yield f"arrivals 20 % {word}", _with_burstiness(load, factor)


def _with_burstiness(load: TunedLoad, factor: float) -> TunedLoad:
    return replace(load, load=replace(load.load, burstiness=factor * load.load.burstiness))


def _with_lengths(load: TunedLoad, prompts: float, answers: float) -> TunedLoad:
    requests = tuple(_scaled(one, prompts, answers) for one in load.workload.requests)
    return replace(load, workload=replace(load.workload, requests=requests))


def _scaled(one: Planned, prompts: float, answers: float) -> Planned:
    pieces = tuple(
        _scaled_piece(piece, answers if piece.role == _ANSWER else prompts) for piece in one.pieces
    )
    return replace(one, pieces=pieces, num_output=_times(one.num_output, answers))


def _scaled_piece(piece: Piece, factor: float) -> Piece:
    return replace(piece, num_tokens=_times(piece.num_tokens, factor))


def _times(count: int, factor: float) -> int:
    return max(1, round(count * factor))


@dataclass(frozen=True, slots=True)
class Rival:
    """rate: simulated, under the stated load. worth: requests a second that it is believed to take there."""

    setting: Setting
    rate: float
    worth: float


class Shifts:
    """Simulates the chosen setting and its rivals under other loads. What they do there beside the stated load is the
    simulation's, what they take of the stated load is what is known of it."""

    def __init__(
        self, calibration: Calibration, limits: Limits, num_requests: int, can_go_on: Callable[[], bool]
    ) -> None:
        self._calibration = calibration
        self._limits = limits
        self._num_requests = num_requests
        self._can_go_on = can_go_on

    def compare(self, words: str, load: TunedLoad, rivals: Sequence[Rival]) -> Shifted | None:
        """rivals: the chosen one first. None where the time was over before all were compared."""
        explorer = Explorer(self._calibration, load, self._limits, self._num_requests, self._can_go_on)
        ratios: list[float] = []
        for one in rivals:
            if not self._can_go_on():
                return None
            found = explorer.search(one.setting, one.rate, _PRECISION, _MOST_PROBES)
            if found.rate is None or found.rate.ended is Ended.TIME:
                return None
            ratios.append(found.estimate / one.rate)
        taken = [ratio * one.worth for ratio, one in zip(ratios, rivals, strict=True)]
        most = max(taken)
        best = rivals[taken.index(most)].setting
        length = rivals[0].setting.config(self._calibration.config).scheduler.max_model_len
        too_long = float((load.lengths > length).mean())
        return Shifted(words, ratios[0], 1 - taken[0] / most if most else 0.0, best, too_long)
