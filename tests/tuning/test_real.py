"""Probes of a real server: when they end, and what they say. The server is a list of outcomes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from noria.bench.certificate import Verdict
from noria.bench.outcome import Outcome, Status
from noria.config.errors import EngineError
from noria.config.option import settings_of
from noria.config.serving import ServeOptions
from noria.tuning.limits import Limits
from noria.tuning.real import Effort, Watch
from noria.tuning.real_engine import RealEngine
from noria.tuning.server_child import child_environment, serving
from noria.tuning.setting import Setting
from support_tuning import calibration, outcome, tuned_load

LIMITS = Limits(ttft_s=1.0, itl_s=0.1)
WHOLE = [0.02] * 20


class Sent:
    """A generator as a Watch sees one, after so many outcomes."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []
        self.now_s = 0.0
        self.is_stopped = False

    @property
    def num_open(self) -> int:
        return 0

    def open_arrivals(self) -> list[tuple[int, float, bool]]:
        return []

    def stop(self) -> None:
        self.is_stopped = True


def watch(left_s: float = 1000.0, most: int = 100, limits: Limits = LIMITS) -> Watch:
    play = tuned_load(most=most).play(2.0, most)
    return Watch(play, limits, Effort(most, 0.95, lambda: left_s))


def watched(outcomes: Sequence[Outcome], judge: Watch) -> int:
    """How many outcomes there were when it ended."""
    sent = Sent()
    for one in outcomes:
        sent.outcomes.append(one)
        sent.now_s = one.end_s
        judge.look(sent)  # type: ignore[arg-type]
        if sent.is_stopped:
            break
    return len(sent.outcomes)


def test_a_load_that_keeps_its_limits_with_room_passes_and_ends() -> None:
    judge = watch(most=200)
    num_seen = watched([outcome(i, i / 2, 0.1, WHOLE) for i in range(200)], judge)
    assert judge.verdict is Verdict.PASS
    assert num_seen < 140


def test_a_load_that_is_over_sooner_than_a_queue_can_grow_does_not_pass() -> None:
    """Ninety requests within a second say nothing of a limit of a second."""
    judge = watch()
    watched([outcome(i, 6.0 + i / 90, 0.1, WHOLE) for i in range(90)], judge)
    assert judge.verdict is Verdict.UNDECIDED


def test_a_queue_that_still_grows_does_not_pass_however_short_it_is() -> None:
    judge = watch(most=200)
    outcomes = [outcome(i, i / 2, 0.1 + i * 0.002, WHOLE) for i in range(200)]
    watched(outcomes, judge)
    assert judge.result(2.0, outcomes, []).verdict is not Verdict.PASS


def test_refusals_fail_a_load_within_a_few_dozen_requests() -> None:
    judge = watch()
    outcomes = [outcome(i, i / 2, 0.1, WHOLE, Status.REJECTED if i % 2 else Status.OK) for i in range(100)]
    num_seen = watched(outcomes, judge)
    found = judge.result(2.0, outcomes[:num_seen], [])
    assert found.verdict is Verdict.FAIL
    assert found.margin > 0
    assert found.figures.num_refused > 0
    assert num_seen < 60


def test_when_the_time_is_over_it_ends_undecided() -> None:
    judge = watch(left_s=0.0)
    assert watched([outcome(i, i / 2, 0.1, WHOLE) for i in range(100)], judge) == 1
    assert judge.verdict is Verdict.UNDECIDED


def test_without_any_answer_the_margin_says_nothing() -> None:
    found = watch().result(2.0, [], [])
    assert (found.verdict, found.margin, found.num_requests) == (Verdict.UNDECIDED, 0.0, 0)
    assert math.isnan(found.figures.goodput.value)


def test_a_server_that_does_not_start_is_an_error_with_what_it_said(tmp_path: Path) -> None:
    with (
        pytest.raises(EngineError, match=r"ended with status 2.*--no-such-flag"),
        serving(["--no-such-flag"], tmp_path / "log"),
    ):
        pass


def test_a_candidate_gets_no_setting_of_the_users_own_server_from_the_environment() -> None:
    kept = {"PATH": "/bin", "NORIA_CACHE": "/cache", "LD_LIBRARY_PATH": "/lib"}
    stated = {
        name: "1" for one in settings_of(ServeOptions) for name in (one.environment, *one.about.fallbacks)
    }
    named = {"NORIA_RUN_LOG", "NORIA_UVICORN_LOG_LEVEL", "NORIA_API_KEY", "VLLM_API_KEY", "NORIA_BLOCK_SIZE"}
    assert named <= stated.keys()
    assert child_environment({**kept, **stated, "NORIA_CONFIG": "mine.yaml"}) == kept


def test_a_setting_without_a_server_has_the_model_of_those_that_had_one(tmp_path: Path) -> None:
    engine = RealEngine(calibration().config, {}, tuned_load(), LIMITS, tmp_path)
    assert engine.fingerprint_of(Setting(8)) == {}
    engine.fingerprints[Setting(4)] = told = {"model": {"hash": "1"}, "settings": {"max_num_seqs": 4}}
    assert engine.fingerprint_of(Setting(4)) == told
    assert engine.fingerprint_of(Setting(8)) == {"model": {"hash": "1"}}
