"""Which setting is chosen, and which points are worth knowing of."""

from __future__ import annotations

import math

from noria.bench.certificate import Verdict
from noria.bench.stats import Interval
from noria.tuning.choice import Contender, Point, choose, dominates, pareto
from noria.tuning.probe import Figures, ProbeResult
from noria.tuning.setting import Setting


def contender(
    rate: float, setting: Setting, low: float = 0.9, kv: float = 0.5, preempt: float = 0.0
) -> Contender:
    figures = Figures(goodput=Interval(rate, low * rate, rate), kv_util_p99=kv, preempt_rate=preempt)
    return Contender(setting, rate, ProbeResult(rate, Verdict.PASS, {"ttft": -0.1}, 100, figures=figures))


def test_the_highest_lower_bound_wins_and_not_the_highest_figure() -> None:
    sure, lucky = contender(10.0, Setting(8), low=0.95), contender(10.5, Setting(16), low=0.85)
    assert choose([lucky, sure]) is sure


def test_of_those_within_one_percent_the_fewest_overrides_win() -> None:
    plain, better = contender(10.0, Setting()), contender(10.08, Setting(max_num_seqs=32, block_size=8))
    assert choose([better, plain]) is plain
    assert choose([contender(10.2, Setting(32)), plain]).setting == Setting(32)


def test_then_the_one_that_needs_less_memory_and_then_the_one_that_preempts_less() -> None:
    full, lean = contender(10.0, Setting(8), kv=0.9), contender(10.0, Setting(16), kv=0.4)
    assert choose([full, lean]) is lean
    calm, unknown = contender(10.0, Setting(32), preempt=0.01), contender(10.0, Setting(64), preempt=math.nan)
    assert choose([unknown, calm]) is calm


def point(goodput: float, ttft: float, itl: float, width: float = 0.05) -> Point:
    spans = [Interval(one, one * (1 - width), one * (1 + width)) for one in (goodput, ttft, itl)]
    figures = Figures(goodput=spans[0], ttft=spans[1], itl=spans[2])
    return Point(Setting(), ProbeResult(goodput, Verdict.PASS, {"ttft": -0.1}, 100, figures=figures))


def test_a_point_dominates_only_where_an_interval_separates() -> None:
    assert dominates(point(10, 1.0, 0.1), point(8, 1.1, 0.1))
    assert not dominates(point(10, 1.0, 0.1), point(9.5, 1.05, 0.1))


def test_a_point_that_is_worse_anywhere_dominates_nothing() -> None:
    assert not dominates(point(12, 1.1, 0.1), point(8, 1.0, 0.1))


def test_the_front_is_what_nothing_dominates() -> None:
    fast, steady, bad = point(10, 2.0, 0.2), point(6, 0.5, 0.05), point(5, 2.0, 0.2)
    assert pareto([fast, steady, bad]) == [fast, steady]
