"""What is reported when stages contradict each other or break."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from noria.cli.tune import _search
from noria.config.errors import EngineError
from noria.config.tuning import TuningOptions
from noria.tuning import tuner
from noria.tuning.explore import Explored, Explorer
from noria.tuning.limits import Limits
from noria.tuning.max_rate import Ended
from noria.tuning.probe import Prober
from noria.tuning.real_engine import RealEngine
from noria.tuning.same_engine import OtherEngine
from noria.tuning.setting import Setting
from noria.tuning.space import Space
from noria.tuning.tuner import Found, Job, Tuner
from noria.tuning.words import HEADINGS, change_words, headline, rows, sentences
from support_tuning import CurveProber, calibration, tuned_load

SPACE = Space(num_seqs=(16,), step_tokens=(128, 512), block_sizes=(16,), prefix_caching=(True,))


def search(limit: float, monkeypatch: pytest.MonkeyPatch, directory: Path) -> Found:
    """On an engine that meets its limits at this rate, whatever the settings."""

    @contextmanager
    def opened(engine: RealEngine, setting: Setting, *effort: Any) -> Iterator[tuple[Prober, Prober]]:
        prober = CurveProber(lambda rate: math.log(rate / limit))
        yield prober, prober

    monkeypatch.setattr(RealEngine, "opened", opened)
    asked = TuningOptions(ttft_ms=300, itl_ms=60, sim_requests=20, candidates=1)
    limits = Limits(ttft_s=0.3, itl_s=0.06)
    job = Job(calibration(), tuned_load("200-400", "5-10"), limits, asked, SPACE, {}, directory)
    return _search(job, False)


def test_a_rate_that_the_engine_refuted_is_not_mixed_with_what_it_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = search(1e-9, monkeypatch, tmp_path)
    assert not found.is_real
    assert found.is_refuted
    assert found.chosen.best.rate == found.chosen_rate.passed < found.chosen_rate.failed
    assert any("No operating point is written" in one for one in sentences(found))


def test_a_setting_that_the_simulation_ruled_out_and_the_machine_chose_is_explained(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    confirm = Tuner.confirm

    def only_ruled_out(stages: Tuner) -> None:
        confirm(stages)
        setting, kept = next(iter(stages._confirmer.confirmed.items()))
        stages._confirmer.confirmed = {setting: kept}
        known = stages._explorer.found[setting]
        stages._explorer.found[setting] = replace(known, why_out="too slow")

    monkeypatch.setattr(Tuner, "confirm", only_ruled_out)
    found = search(1.0, monkeypatch, tmp_path)
    assert found.is_real
    assert found.sensitivities


def test_under_the_load_that_was_stated_the_chosen_setting_takes_what_it_takes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Twenty requests would be over before a queue has grown to the limit on the first token."""
    monkeypatch.setattr(tuner, "shifted_loads", lambda load: [("same", load)])
    found = search(1.0, monkeypatch, tmp_path)
    assert [one.ratio for one in found.shifts] == [pytest.approx(1.0, abs=0.05)]


def test_a_change_whose_search_the_time_cuts_off_is_not_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    confirm, whole = Tuner.confirm, Explorer.search

    def cut_off(explorer: Explorer, *asked: Any) -> Explored:
        found = whole(explorer, *asked)
        assert found.rate is not None
        return replace(found, rate=replace(found.rate, ended=Ended.TIME))

    def cut_off_from_then_on(stages: Tuner) -> None:
        confirm(stages)
        monkeypatch.setattr(Explorer, "search", cut_off)

    monkeypatch.setattr(Tuner, "confirm", cut_off_from_then_on)
    found = search(1.0, monkeypatch, tmp_path)
    assert found.sensitivities == ()
    assert found.shifts == ()


def test_settings_with_the_same_figures_are_one_row_that_names_what_makes_no_difference(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = search(1.0, monkeypatch, tmp_path)
    one = next(kept for kept in found.explored if kept.setting.max_num_seqs and not kept.why_out)
    twins = [replace(one.setting, max_num_batched_tokens=tokens) for tokens in (1024, 2048)]
    alike = [replace(one, setting=setting, same_as=None) for setting in twins]
    cached = replace(one, setting=replace(twins[0], enable_prefix_caching=False), same_as=twins[0])
    shown = rows(replace(found, explored=(*alike, cached), confirmed={}))
    assert len(shown) == 1
    assert shown[0][0].endswith("(no difference: tokens 1024 = 2048; prefix cache off = on)")
    assert len(shown[0]) == len(HEADINGS)


def test_a_change_of_nothing_has_no_sign() -> None:
    assert [change_words(ratio) for ratio in (0.9962, 1.004, 1.05, 0.81)] == ["0%", "0%", "+5%", "-19%"]


def test_a_headline_says_whether_the_rate_is_certified(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = search(1.0, monkeypatch, tmp_path)
    assert found.is_certified
    assert "(certified)" in headline(found)
    setting, kept = found.chosen.setting, found.confirmed[found.chosen.setting]
    unsure = replace(found, confirmed={setting: replace(kept, final=None)})
    assert "(measured, not certified)" in headline(unsure)


@pytest.mark.parametrize("error", [EngineError("it broke"), OtherEngine("another model")])
def test_an_error_after_the_simulation_keeps_what_was_found_unless_it_is_another_engine(
    error: Exception, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken(stages: Tuner) -> None:
        raise error

    monkeypatch.setattr(Tuner, "confirm", broken)
    if isinstance(error, OtherEngine):
        with pytest.raises(OtherEngine):
            search(1.0, monkeypatch, tmp_path)
        return
    found = search(1.0, monkeypatch, tmp_path)
    assert found.faults == ("it broke",)
    assert not found.is_interrupted
    assert found.sensitivities
