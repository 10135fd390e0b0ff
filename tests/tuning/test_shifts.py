"""What a load that differs by a fifth does to the choice."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from noria.config.benching import LoadOptions, WorkloadOptions
from noria.tuning.limits import Limits
from noria.tuning.load import TunedLoad, make_load
from noria.tuning.setting import Setting
from noria.tuning.shifts import Rival, Shifts, shifted_loads
from support_tuning import calibration, tuned_load

LIMITS = Limits(ttft_s=1.0, itl_s=0.06)


def lengths(load: TunedLoad) -> tuple[float, float]:
    """Of prompts and answers, on average."""
    requests = load.workload.requests
    return (
        float(np.mean([one.num_prompt for one in requests])),
        float(np.mean([one.num_output for one in requests])),
    )


def test_one_thing_of_the_load_changes_at_a_time_by_a_fifth() -> None:
    load = tuned_load("200-400", "10-30")
    prompts, answers = lengths(load)
    found = dict(shifted_loads(load))
    expected = {
        "prompts 20 % longer": (1.2, 1.0),
        "prompts 20 % shorter": (0.8, 1.0),
        "answers 20 % longer": (1.0, 1.2),
        "answers 20 % shorter": (1.0, 0.8),
    }
    for words, (more_prompts, more_answers) in expected.items():
        assert lengths(found[words]) == pytest.approx(
            (more_prompts * prompts, more_answers * answers), rel=0.02
        )
    assert found["arrivals 20 % burstier"].load.burstiness == pytest.approx(0.8)
    assert lengths(found["arrivals 20 % burstier"]) == (prompts, answers)


def test_answers_that_are_longer_make_the_later_prompts_of_a_conversation_longer() -> None:
    options = WorkloadOptions(prompt_tokens="20", output_tokens="100", turns="2")
    load = make_load(options, LoadOptions(), 10, 4096)
    found = dict(shifted_loads(load))
    second = next(one for one in found["answers 20 % longer"].workload.requests if one.turn == 1)
    assert [piece.num_tokens for piece in second.pieces] == [20, 120, 20]
    assert second.num_output == 120


def test_a_trace_has_instants_of_its_own() -> None:
    load = tuned_load()
    times = np.arange(len(load.workload.requests), dtype=np.float64)
    trace = replace(load, workload=replace(load.workload, times_s=times))
    assert [words.split()[0] for words, _ in shifted_loads(trace)] == ["prompts", "answers"] * 2


def test_longer_prompts_cost_rate_and_what_another_setting_would_do_is_told() -> None:
    """Two at a time wait in line for long prompts; under the stated load, where the two settings take 4.28 and 5.17
    requests a second, the machine has them worth the same."""
    loads = dict(shifted_loads(tuned_load()))
    shifts = Shifts(calibration(), LIMITS, 127, lambda: True)
    rivals = [Rival(Setting(2, 64), 4.28, 2.5), Rival(Setting(16, 128), 5.17, 2.5)]
    longer = shifts.compare("longer", loads["prompts 20 % longer"], rivals)
    shorter = shifts.compare("shorter", loads["prompts 20 % shorter"], rivals)
    assert longer is not None
    assert shorter is not None
    assert (longer.best, shorter.best) == (Setting(16, 128), Setting(2, 64))
    assert (longer.ratio, longer.regret) == (pytest.approx(0.88, abs=0.02), pytest.approx(0.095, abs=0.02))
    assert (shorter.ratio, shorter.regret) == (pytest.approx(1.14, abs=0.02), 0.0)
    assert longer.too_long == 0.0


def test_requests_that_are_too_long_for_the_chosen_setting_are_counted() -> None:
    loads = dict(shifted_loads(tuned_load("100", "20")))
    shifts = Shifts(calibration(), LIMITS, 100, lambda: True)
    rivals = [Rival(Setting(16, 128, max_model_len=112), 5.0, 5.0), Rival(Setting(16, 128), 5.0, 5.0)]
    found = shifts.compare("longer", loads["prompts 20 % longer"], rivals)
    assert found is not None
    assert (found.too_long, found.ratio, found.regret, found.best) == (1.0, 0.0, 1.0, Setting(16, 128))


def test_a_comparison_that_the_time_cuts_off_is_none() -> None:
    """Within the last search: of its first probe, that rate is all there is, as if it were the highest."""
    rivals = [Rival(Setting(16, 128), 2.0, 2.0)]
    assert Shifts(calibration(), LIMITS, 100, lambda: True).compare("same", tuned_load(), rivals) is not None
    left = iter([True, False])
    shifts = Shifts(calibration(), LIMITS, 100, lambda: next(left))
    assert shifts.compare("same", tuned_load(), rivals) is None
    assert next(left, None) is None


def test_without_time_nothing_is_compared() -> None:
    shifts = Shifts(calibration(), LIMITS, 100, lambda: False)
    assert shifts.compare("same", tuned_load(), [Rival(Setting(), 1.0, 1.0)]) is None
