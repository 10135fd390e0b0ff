"""The real stage with probers that are formulas: what it learns, what it gives up on, and what it certifies."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from noria.bench.certificate import Certifier, Verdict
from noria.config.errors import EngineError
from noria.tuning.bias import Bias, shifted
from noria.tuning.confirm import Candidate, Confirmed, Confirmer, reranked, shortlist
from noria.tuning.explore import Explored
from noria.tuning.max_rate import Ended, SearchOptions, Shape, conclude, find_max_rate
from noria.tuning.probe import CertainProber, Prober, ProbeResult
from noria.tuning.real import Screened
from noria.tuning.same_engine import OtherEngine
from noria.tuning.setting import Setting
from support_queues import limit_of, waits
from support_tuning import CurveProber, Foretold, calibration, queue_evidence, result


def candidate(setting: Setting, rate: float) -> Candidate:
    """Simulated: the limit is met at this rate."""
    found = find_max_rate(CurveProber(lambda at: math.log(at / rate)), rate, SearchOptions(0.02))
    return Candidate(Explored(setting, found), setting.config(calibration().config))


class Engines:
    """real: by setting, the rate at which the machine meets the limit; 0 for an engine that does not start."""

    def __init__(self, real: dict[Setting, float]) -> None:
        self.real = real
        self.opened: list[Setting] = []
        self.closed: list[Setting] = []

    @contextmanager
    def __call__(self, setting: Setting) -> Iterator[tuple[Prober, CertainProber]]:
        self.opened.append(setting)
        limit = self.real[setting]
        if not limit:
            raise EngineError("noria serve ended with status 1: no memory")
        prober = CurveProber(lambda rate: math.log(rate / limit))
        try:
            yield prober, CurveProber(lambda rate: math.log(rate / limit), open_below=0.06)
        finally:
            self.closed.append(setting)


def confirmer(engines: Engines, can_go_on: bool = True) -> Confirmer:
    return Confirmer(engines, lambda: can_go_on, lambda words: None, 0.95, NEAR_THE_LIMIT)


NEAR_THE_LIMIT = Foretold(lambda setting, share, rate, confidence: share <= 0.93)


def test_what_the_machine_does_replaces_what_was_simulated() -> None:
    engines = Engines({Setting(): 8.0, Setting(16): 12.0})
    stage = confirmer(engines)
    stage.screen([candidate(Setting(), 10.0), candidate(Setting(16), 15.0)])
    assert stage.confirmed[Setting()].estimate == pytest.approx(8.0, rel=0.05)
    assert stage.confirmed[Setting(16)].estimate == pytest.approx(12.0, rel=0.05)
    assert engines.closed == engines.opened


def test_one_that_was_wrong_by_a_fifth_tells_where_to_start_with_the_next() -> None:
    engines = Engines({Setting(): 8.0, Setting(16): 12.0})
    stage = confirmer(engines)
    stage.screen([candidate(Setting(), 10.0), candidate(Setting(16), 15.0)])
    first = stage.confirmed[Setting(16)].rate.probes[0]
    assert first.rate == pytest.approx(12.0, rel=0.05)


def test_an_engine_that_does_not_start_is_told_and_what_takes_more_is_not_tried() -> None:
    small, large, other = Setting(16, 512), Setting(64, 1024), Setting(8, 256)
    engines = Engines({small: 0.0, large: 9.0, other: 5.0})
    stage = confirmer(engines)
    stage.screen([candidate(small, 6.0), candidate(large, 9.0), candidate(other, 5.0)])
    assert engines.opened == [small, other]
    assert "no memory" in stage.broken[small]


def test_a_rate_is_certified_below_the_edge_where_nothing_is_certain() -> None:
    stage = confirmer(Engines({Setting(): 10.0}))
    stage.screen([candidate(Setting(), 10.0)])
    stage.certify(Setting())
    final = stage.confirmed[Setting()].final
    assert final is not None
    assert final.best is not None
    assert final.best.verdict is Verdict.PASS
    assert stage.confirmed[Setting()].is_certified
    assert 8.0 < final.passed < 9.5


class Curved(Engines):
    """The machine's margins at a rate, for whatever setting; near its limit nothing is certain."""

    def __init__(self, margin: Callable[[float], float]) -> None:
        super().__init__({Setting(): 10.0})
        self._margin = margin

    @contextmanager
    def __call__(self, setting: Setting) -> Iterator[tuple[Prober, CertainProber]]:
        yield CurveProber(self._margin), CurveProber(self._margin, open_below=0.06)


@pytest.mark.parametrize(
    ("margin", "shape"),
    [
        (lambda rate: -1.2 if rate < 10 else 1.5, Shape.CLIFF),
        (lambda rate: math.log(rate / 10), Shape.SMOOTH),
    ],
)
def test_a_certified_rate_is_told_with_the_edge_that_was_seen_above_it(
    margin: Callable[[float], float], shape: Shape
) -> None:
    stage = confirmer(Curved(margin))
    stage.screen([candidate(Setting(), 9.8)])
    stage.certify(Setting())
    one = stage.confirmed[Setting()]
    assert one.is_certified
    assert one.settled.best is not None
    assert one.settled.best.rate == one.settled.passed < 9.5
    assert one.settled.shape is one.rate.shape is shape
    assert one.settled.estimate == pytest.approx(10.0, rel=0.05)


def test_where_no_rate_failed_the_limit_is_foretold_beyond_the_one_that_is_certified() -> None:
    """The time was over after one probe at 8, which kept the limits with room."""
    stage = confirmer(Curved(lambda rate: math.log(rate / 10)))
    left = iter([True, False])
    stage.can_go_on = lambda: next(left)
    simulated = find_max_rate(CurveProber(lambda rate: math.log(rate / 8)), 5.0, SearchOptions(0.02))
    stage.screen([Candidate(Explored(Setting(), simulated), Setting().config(calibration().config))])
    stage.can_go_on = lambda: False
    stage.certify(Setting())
    one = stage.confirmed[Setting()]
    assert one.is_certified
    assert one.settled.failed == math.inf
    assert one.settled.passed < 9.5
    assert one.settled.estimate == one.estimate == pytest.approx(10.0, rel=0.01)


def test_a_certificate_refutes_what_failed_at_its_rate_or_less() -> None:
    one = Confirmed(
        Setting(),
        10.0,
        conclude([result(7.0, Verdict.FAIL, 0.1), result(9.0, Verdict.FAIL, 0.3)], Ended.PROBES),
        6.5,
        conclude([result(8.0, Verdict.PASS, -0.2)], Ended.PRECISE),
    )
    assert (one.settled.passed, one.settled.failed) == (8.0, 9.0)
    assert 8.0 < one.settled.estimate < 9.0


def test_with_time_left_a_higher_rate_is_certified_than_the_first_that_passed() -> None:
    """It takes less than was foretold, which only then is known."""
    asked: list[float] = []

    def foresee(setting: Setting, share: float, rate: float, confidence: float) -> bool:
        asked.append(confidence)
        return share <= (0.7 if confidence < 0.98 else 0.9)

    stage = Confirmer(Engines({Setting(): 10.0}), lambda: True, lambda words: None, 0.95, Foretold(foresee))
    stage.screen([candidate(Setting(), 10.0)])
    stage.certify(Setting())
    final = stage.confirmed[Setting()].final
    assert final is not None
    assert [probe.verdict for probe in final.probes] == [Verdict.PASS, Verdict.PASS]
    assert final.probes[0].rate < 7.0 < 8.5 < final.probes[1].rate == final.passed
    assert asked[0] == pytest.approx(0.975)


def test_when_the_time_is_over_after_the_first_that_passed_that_one_is_kept() -> None:
    left = iter([True] * 6 + [False] * 6)
    stage = Confirmer(
        Engines({Setting(): 10.0}),
        lambda: next(left),
        lambda words: None,
        0.95,
        Foretold(lambda *asked: True),
    )
    stage.screen([candidate(Setting(), 10.0)])
    stage.can_go_on = lambda: False
    stage.certify(Setting())
    final = stage.confirmed[Setting()].final
    assert final is not None
    assert len(final.probes) == 1


def test_what_passed_while_settings_were_ranked_is_no_certificate() -> None:
    """The last probes are all too near to the limit to be certain."""

    class Unsure(Engines):
        @contextmanager
        def __call__(self, setting: Setting) -> Iterator[tuple[Prober, CertainProber]]:
            with super().__call__(setting) as (screening, _):
                yield screening, CurveProber(lambda rate: math.log(rate / 10), open_below=9.0)

    stage = confirmer(Unsure({Setting(): 10.0}))
    stage.screen([candidate(Setting(), 10.0)])
    stage.certify(Setting())
    one = stage.confirmed[Setting()]
    assert one.final is not None
    assert {probe.verdict for probe in one.final.probes} == {Verdict.UNDECIDED}
    assert not one.is_certified
    assert one.settled.best == one.rate.best


def test_a_rate_that_passed_while_settings_were_ranked_is_none_once_less_has_failed() -> None:
    class Slower(Engines):
        @contextmanager
        def __call__(self, setting: Setting) -> Iterator[tuple[Prober, CertainProber]]:
            with super().__call__(setting) as (screening, _):
                yield screening, CurveProber(lambda rate: max(0.0, math.log(rate / 8)), open_below=0.1)

    stage = confirmer(Slower({Setting(): 10.0}))
    stage.screen([candidate(Setting(), 12.0)])
    before = stage.confirmed[Setting()]
    stage.certify(Setting())
    one = stage.confirmed[Setting()]
    assert before.rate.passed > 9.0
    assert one.final is not None
    refuted = min(probe.rate for probe in one.final.probes if probe.verdict is Verdict.FAIL)
    assert one.settled.failed == one.limit <= refuted < before.rate.passed
    # By its figures alone a lower rate kept the limits: that is what there is to tell, and no certificate.
    assert 0 < one.settled.passed < refuted
    assert not one.is_certified


def test_an_engine_that_breaks_before_it_is_certified_is_told_and_keeps_what_was_measured() -> None:
    engines = Engines({Setting(): 10.0})
    stage = confirmer(engines)
    stage.screen([candidate(Setting(), 10.0)])
    engines.real[Setting()] = 0.0
    stage.certify(Setting())
    assert "no memory" in stage.broken[Setting()]
    assert not stage.confirmed[Setting()].is_certified
    assert stage.confirmed[Setting()].estimate == pytest.approx(10.0, rel=0.05)


def test_an_engine_that_is_another_than_was_simulated_ends_the_search() -> None:
    @contextmanager
    def opened(setting: Setting) -> Iterator[tuple[Prober, CertainProber]]:
        if setting == Setting():
            raise OtherEngine("the server has another model")
        yield CurveProber(math.log), CurveProber(math.log)

    stage = Confirmer(opened, lambda: True, lambda words: None, 0.95, NEAR_THE_LIMIT)
    with pytest.raises(OtherEngine):
        stage.screen([candidate(Setting(), 10.0)])
    assert stage.broken == {}


def test_all_rates_and_settings_that_are_tried_share_one_error() -> None:
    """Whichever way it goes: the parts of all tries together are less than what the confidence leaves."""
    asked: list[float] = []

    class Hopeless(Engines):
        @contextmanager
        def __call__(self, setting: Setting) -> Iterator[tuple[Prober, CertainProber]]:
            with super().__call__(setting) as (screening, _):
                yield screening, CurveProber(lambda rate: 0.1, confidences=asked)

    settings = [Setting(), Setting(16), Setting(8)]
    stage = confirmer(Hopeless(dict.fromkeys(settings, 10.0)))
    stage.screen([candidate(setting, 10.0) for setting in settings])
    for setting in settings:
        stage.certify(setting)
    assert len(asked) == 18
    assert asked == sorted(asked)
    assert asked[0] == pytest.approx(0.975)
    assert sum(1 - confidence for confidence in asked) < 0.05


class QueueProber:
    """A queue of one server, rates in parts of its capacity, judged as a real one is."""

    def __init__(self, random: np.random.Generator, limit: float) -> None:
        self._random = random
        self._limit = limit

    def certify(self, rate: float, confidence: float) -> ProbeResult:
        certifier, verdict = Certifier(0.95, confidence), Verdict.UNDECIDED
        waited = waits(self._random, 600, min(rate, 0.98), is_fixed=False)
        for count in range(1, len(waited) + 1):
            if not certifier.is_due(count):
                continue
            found = queue_evidence(waited[:count], self._limit)
            verdict = certifier.look(count, {"ttft": found})
            if verdict is not Verdict.UNDECIDED:
                break
        return result(rate, verdict, math.log(rate / 0.5), num_requests=count)


def test_a_rate_beyond_what_a_queue_can_keep_is_certified_no_oftener_than_the_error_allows() -> None:
    """The estimate is too high, so that several rates that miss the limit are tried on the way down."""
    random = np.random.default_rng(17)
    truth = 0.5
    limit = limit_of(0.95, truth, is_fixed=False)

    @contextmanager
    def opened(setting: Setting) -> Iterator[tuple[Prober, CertainProber]]:
        yield CurveProber(lambda rate: math.log(rate / (1.5 * truth))), QueueProber(random, limit)

    false = 0
    for _ in range(80):
        stage = Confirmer(opened, lambda: True, lambda words: None, 0.95, NEAR_THE_LIMIT)
        stage.screen([candidate(Setting(), 1.5 * truth)])
        stage.certify(Setting())
        best = stage.confirmed[Setting()].final
        assert best is not None
        assert len(best.probes) > 1
        false += best.passed > truth
    assert false / 80 <= 0.05


def test_when_the_time_is_over_nothing_more_is_started() -> None:
    engines = Engines({Setting(): 10.0})
    confirmer(engines, can_go_on=False).screen([candidate(Setting(), 10.0)])
    assert engines.opened == []


def test_settings_are_ranked_again_by_what_the_machine_showed() -> None:
    """The machine is slower than foretold where more run at once."""
    few, some, many = (
        candidate(Setting(seqs, 512), rate) for seqs, rate in ((8, 9.0), (32, 9.5), (128, 10.0))
    )
    bias = Bias([(few.config, 0.0), (some.config, -0.2), (many.config, -0.4)])
    assert [one.explored.setting.max_num_seqs for one in reranked([many, some, few], bias)] == [8, 32, 128]


def test_the_bias_of_one_measurement_is_that_of_all_and_none_is_none() -> None:
    known, other = candidate(Setting(), 1.0), candidate(Setting(64, 1024), 1.0)
    assert Bias([(known.config, -0.3)]).log_ratio(other.config) == pytest.approx(-0.3)
    assert Bias([]).log_ratio(other.config) == 0.0


def test_the_ridge_finds_a_slope_that_many_measurements_share() -> None:
    sizes = (2, 4, 8, 16, 32, 64, 128, 256)
    configs = [Setting(size, 512).config(calibration().config) for size in sizes]
    bias = Bias([(config, -0.1 * math.log2(size)) for config, size in zip(configs, sizes, strict=True)])
    told = np.array([bias.log_ratio(config) for config in configs])
    assert told == pytest.approx(-0.1 * np.log2(sizes), abs=0.06)


def test_one_probe_tells_how_far_the_simulation_is_off() -> None:
    curve = [(math.log(rate), math.log(rate / 10)) for rate in (5.0, 8.0, 10.0, 13.0)]
    assert shifted(curve, 8.0, 0.0) == pytest.approx(math.log(0.8))


def test_the_shortlist_has_the_calibrated_settings_the_best_and_the_corner_once_each() -> None:
    ranked = [candidate(Setting(size, 512), 10.0 - size / 100).explored for size in (16, 32, 64)]
    measured, corner = candidate(Setting(), 3.0).explored, ranked[0]
    assert [one.setting for one in shortlist(ranked, measured, corner, 2)] == [
        Setting(),
        ranked[0].setting,
        ranked[1].setting,
    ]


def test_a_corner_that_decides_as_one_of_the_shortlist_is_not_measured() -> None:
    ranked = [candidate(Setting(size, 512), 10.0 - size / 100).explored for size in (16, 32)]
    measured = candidate(Setting(), 3.0).explored
    corner = candidate(Setting(512, 16384), 3.0).explored
    assert shortlist(ranked, measured, replace(corner, same_as=Setting(16, 512)), 2)[-1].setting == Setting(
        32, 512
    )
    assert shortlist(ranked, measured, replace(corner, same_as=Setting(64, 512)), 2)[-1] == replace(
        corner, same_as=Setting(64, 512)
    )
    assert shortlist(ranked, measured, corner, 2)[-1] == corner


class Fixed:
    def __init__(self, answer: ProbeResult) -> None:
        self.answer = answer

    def probe(self, rate: float) -> ProbeResult:
        return self.answer


def test_screening_judges_by_the_figures_where_certainty_would_take_too_long() -> None:
    leaning = result(5.0, Verdict.UNDECIDED, -0.2)
    assert Screened(Fixed(leaning)).probe(5.0).verdict is Verdict.PASS
    assert Screened(Fixed(result(5.0, Verdict.UNDECIDED, 0.2))).probe(5.0).verdict is Verdict.FAIL
    rising = replace(leaning, is_settled=False)
    assert Screened(Fixed(rising)).probe(5.0).verdict is Verdict.UNDECIDED
    late = replace(result(5.0, Verdict.UNDECIDED, 0.2), is_settled=False)
    assert Screened(Fixed(late)).probe(5.0).verdict is Verdict.FAIL
    hardly = result(5.0, Verdict.UNDECIDED, -0.2, num_requests=5)
    assert Screened(Fixed(hardly)).probe(5.0).verdict is Verdict.UNDECIDED
