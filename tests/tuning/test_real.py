"""Probes of a real server: when they end, and what they say. The server is a list of outcomes."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from noria.bench.certificate import Verdict
from noria.bench.outcome import Outcome, Status
from noria.config.errors import EngineError
from noria.config.option import settings_of
from noria.config.serving import ServeOptions
from noria.tuning import real
from noria.tuning.limits import Evidence, Limits, evidence
from noria.tuning.probe import ProbeResult
from noria.tuning.real import Effort, Screened, Watch
from noria.tuning.real_engine import RealEngine
from noria.tuning.server_child import child_environment, server_info, serving
from noria.tuning.setting import Setting
from noria.tuning.standing import Standing
from support_tuning import calibration, outcome, tuned_load

LIMITS = Limits(ttft_s=1.0, itl_s=0.1)
WHOLE = [0.02] * 20


class Sent:
    """A generator as a Watch sees one, after so many outcomes. waiting: those that are due and not sent."""

    def __init__(self, waiting: Sequence[tuple[int, float, bool]] = ()) -> None:
        self.outcomes: list[Outcome] = []
        self.now_s = 0.0
        self._waiting = list(waiting)
        self.is_stopped = False

    @property
    def num_open(self) -> int:
        return len(self.open_arrivals())

    def open_arrivals(self) -> list[tuple[int, float, bool]]:
        return [one for one in self._waiting if one[1] <= self.now_s]

    def stop(self) -> None:
        self.is_stopped = True


def watch(left_s: float = 1000.0, most: int = 100, limits: Limits = LIMITS) -> Watch:
    play = tuned_load(most=most).play(2.0, most)
    return Watch(play, limits, Effort(most, 0.95, lambda: left_s))


def watched(
    outcomes: Sequence[Outcome], judge: Watch, waiting: Sequence[tuple[int, float, bool]] = ()
) -> int:
    """How many outcomes there were when it ended."""
    sent = Sent(waiting)
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
    assert num_seen < 170


def counted_evidence(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Of how many requests evidence was made, each time."""
    made: list[int] = []

    def counting(*asked: Any) -> dict[str, Evidence]:
        found = evidence(*asked)
        made.append(max((one.num_decided for one in found.values()), default=0))
        return found

    monkeypatch.setattr(real, "evidence", counting)
    return made


def test_evidence_is_made_only_when_a_look_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    """While it is made, nothing is sent: from 12 decided requests on, each time that there are 1.35 times as many."""
    made, judge = counted_evidence(monkeypatch), watch(most=200)
    begin_s = judge._begin_s
    watched([outcome(i, begin_s + i / 2, 0.1, WHOLE) for i in range(70)], judge)
    assert made == [12, 17, 23, 32, 44, 60]


def test_requests_behind_one_that_is_still_answered_are_not_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    made, judge = counted_evidence(monkeypatch), watch(most=200)
    first_s = judge._begin_s
    outcomes = [outcome(i, first_s + i / 2, 0.1, WHOLE) for i in range(1, 70)]
    watched(outcomes, judge, [(0, first_s, True)])
    assert made == []


def test_a_load_that_is_over_sooner_than_a_queue_can_grow_does_not_pass() -> None:
    """Ninety requests within a second say nothing of a limit of a second."""
    judge = watch()
    outcomes = [outcome(i, 6.0 + i / 90, 0.1, WHOLE) for i in range(90)]
    assert watched(outcomes, judge) == 90
    found = judge.result(2.0, outcomes, [])
    assert found.verdict is Verdict.UNDECIDED
    assert not found.is_settled


@pytest.mark.parametrize("count", [77, 104, 110, 150])
def test_nor_does_its_end_let_it_pass(count: int) -> None:
    """Five seconds of load; a limit of two seconds needs twenty."""
    judge = watch(most=count, limits=Limits(ttft_s=2.0))
    outcomes = [outcome(i, 12.0 + 5 * i / count, 0.1, WHOLE) for i in range(count)]
    found = judge.result(2.0, outcomes[: watched(outcomes, judge)], [])
    assert found.verdict is Verdict.UNDECIDED
    assert Screened(Fixed(found)).probe(2.0).verdict is Verdict.UNDECIDED


def test_while_it_lasts_it_tells_requests_independent_ones_and_the_time_left() -> None:
    told: list[Standing] = []
    play = tuned_load(most=200).play(2.0, 200)
    judge = Watch(play, LIMITS, Effort(200, 0.95, lambda: 1000.0, tell=told.append))
    watched([outcome(i, i / 2, 0.1, WHOLE) for i in range(200)], judge)
    assert {one.num_planned for one in told} == {180}
    assert told[0].num_effective == told[0].num_needed == 0
    assert [one.num_done for one in told] == sorted(one.num_done for one in told)
    assert [one.left_s for one in told] == sorted((one.left_s for one in told), reverse=True)
    last = told[-1]
    assert 100 <= last.num_done < 125
    assert last.num_effective == pytest.approx(last.num_done, rel=0.1)
    assert last.num_needed is not None
    assert 82 <= last.num_needed < 109
    assert f"{last.num_done} of 180 requests" in last.words()
    assert f"of {last.num_needed} independent ones" in last.words()


def test_a_load_that_stays_open_tells_what_was_missing_and_for_how_long() -> None:
    """Forty requests of which none was late, where 82 are needed: it would have had to last about twice as long."""
    judge = watch(most=60)
    outcomes = [outcome(i, judge._begin_s + i / 2, 0.1, WHOLE) for i in range(40)]
    watched(outcomes, judge)
    found = judge.result(2.0, outcomes, [])
    assert found.verdict is Verdict.UNDECIDED
    assert found.num_effective == pytest.approx(40)
    assert found.num_needed is not None
    assert found.missing_s == pytest.approx((found.num_needed - 40) / 2.0)


def test_what_the_end_of_the_time_cuts_is_judged_as_it_stood_before() -> None:
    """Every fourth request waits, past its limit already, when the time is over: cut, they would be forgotten."""
    outcomes = [outcome(i, 6.0 + i / 4, 0.1, WHOLE) for i in range(200) if i % 4]
    waiting = [(i, 6.0 + i / 4, False) for i in range(0, 200, 4)]
    judge, sent = watch(left_s=0.0, most=200), Sent(waiting)
    sent.outcomes, sent.now_s = list(outcomes), 58.0
    judge.look(sent)  # type: ignore[arg-type]
    assert sent.is_stopped
    cut = [outcome(i, arrival_s, 0.0, WHOLE, Status.CUT) for i, arrival_s, _ in waiting]
    found = judge.result(4.0, [*outcomes, *cut], [])
    assert found.verdict is Verdict.FAIL
    assert found.bad / found.num_effective == pytest.approx(1 / 4, rel=0.05)
    assert found.margin > 0


def test_a_load_that_keeps_its_limits_to_its_end_passes_there() -> None:
    judge = watch(most=100, limits=Limits(ttft_s=2.0))
    outcomes = [outcome(i, 12.0 + i / 3, 0.1 + i % 7 / 100, WHOLE) for i in range(100)]
    found = judge.result(3.0, outcomes, [])
    assert found.verdict is Verdict.PASS
    assert found.is_settled


def test_a_queue_that_still_grows_does_not_pass_however_short_it_is() -> None:
    judge = watch(most=200)
    outcomes = [outcome(i, i / 2, 0.1 + i * 0.002, WHOLE) for i in range(200)]
    watched(outcomes, judge)
    assert judge.result(2.0, outcomes, []).verdict is not Verdict.PASS


@pytest.mark.parametrize("rise_s", [1e-16, 1e-5])
def test_first_tokens_that_all_come_equally_soon_are_no_queue(rise_s: float) -> None:
    judge = watch(most=200)
    outcomes = [outcome(i, i / 2, 0.05 + i * rise_s, WHOLE) for i in range(200)]
    watched(outcomes, judge)
    assert judge.verdict is Verdict.PASS


def test_refusals_fail_a_load_within_a_few_dozen_requests() -> None:
    judge = watch()
    outcomes = [outcome(i, i / 2, 0.1, WHOLE, Status.REJECTED if i % 2 else Status.OK) for i in range(100)]
    num_seen = watched(outcomes, judge)
    found = judge.result(2.0, outcomes[:num_seen], [])
    assert found.verdict is Verdict.FAIL
    assert found.margin > 0
    assert found.figures.num_refused > 0
    assert num_seen < 60


class Fixed:
    def __init__(self, answer: ProbeResult) -> None:
        self.answer = answer

    def probe(self, rate: float) -> ProbeResult:
        return self.answer


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


def test_a_candidate_is_asked_past_the_proxy_that_the_environment_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Telling(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(f'{{"asked": "{self.path}"}}'.encode())

        def log_message(self, format: str, *args: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Telling) as server:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, "http://127.0.0.1:9")  # nobody listens there
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        answering = threading.Thread(target=server.handle_request)
        answering.start()
        assert server_info(f"http://127.0.0.1:{server.server_port}") == {"asked": "/server_info"}
        answering.join()


def test_a_candidate_gets_no_setting_of_the_users_own_server_from_the_environment() -> None:
    kept = {"PATH": "/bin", "NORIA_CACHE": "/cache", "LD_LIBRARY_PATH": "/lib"}
    stated = {
        name: "1" for one in settings_of(ServeOptions) for name in (one.environment, *one.about.fallbacks)
    }
    named = {"NORIA_RUN_LOG", "NORIA_UVICORN_LOG_LEVEL", "NORIA_API_KEY", "VLLM_API_KEY", "NORIA_BLOCK_SIZE"}
    assert named <= stated.keys()
    assert child_environment({**kept, **stated, "NORIA_CONFIG": "mine.yaml"}) == kept


def test_a_setting_without_a_server_has_the_model_of_those_that_had_one(tmp_path: Path) -> None:
    engine = RealEngine(calibration().config, {}, tuned_load(), LIMITS, 100, tmp_path)
    assert engine.fingerprint_of(Setting(8)) == {}
    engine.fingerprints[Setting(4)] = told = {"model": {"hash": "1"}, "settings": {"max_num_seqs": 4}}
    assert engine.fingerprint_of(Setting(4)) == told
    assert engine.fingerprint_of(Setting(8)) == {"model": {"hash": "1"}}
