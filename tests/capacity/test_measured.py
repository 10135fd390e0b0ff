"""A step's time runs to the next step's start, unless nothing followed at once; and a calibration survives its file."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from noria.capacity.fit import MeasuredStep, fit_steps
from noria.capacity.measured import measured_steps
from noria.capacity.model_file import Calibration, load, save
from noria.capacity.simulate import Deployment, simulate
from noria.config.errors import ConfigError
from noria.engine.messages import StepRecord
from support_capacity import poisson, simple_model
from support_engine import engine_config


def simulated_steps(rate: float, count: int) -> tuple[StepRecord, ...]:
    config = engine_config(num_blocks=512, block_size=16, max_num_seqs=8, max_num_batched_tokens=128)
    load_ = poisson(random.Random(1), rate, count, 48, 20)
    return simulate(Deployment(config, simple_model()), load_).steps[0]


def test_what_the_engine_does_between_steps_belongs_to_them() -> None:
    steps = list(simulated_steps(1000.0, 40))
    apart = [replace(step, start_s=step.start_s + 0.0005 * place) for place, step in enumerate(steps)]
    for plain, with_gap in zip(measured_steps(steps), measured_steps(apart), strict=True):
        assert with_gap.seconds == pytest.approx(plain.seconds + 0.0005)


def test_idle_time_is_no_step_s_own() -> None:
    steps = simulated_steps(2.0, 40)
    assert steps[-1].start_s > 10  # it idled most of the time
    own = sum(step.plan_s + step.launch_s + step.wait_s + step.commit_s for step in steps)
    assert sum(step.seconds for step in measured_steps(steps)) == pytest.approx(own)


def test_a_model_learnt_from_a_simulation_is_the_one_that_drove_it() -> None:
    steps = measured_steps([*simulated_steps(20.0, 200), *simulated_steps(1000.0, 200)])
    fit = fit_steps(steps)
    assert fit.mape < 0.01
    truth = simple_model()
    for step in steps:
        assert fit.model.seconds(step.features) == pytest.approx(truth.seconds(step.features), rel=0.05)


def calibration() -> Calibration:
    fit = fit_steps(
        [MeasuredStep(step.features, step.seconds) for step in measured_steps(simulated_steps(20, 50))]
    )
    return Calibration(engine_config(), fit.model, fit.num_steps, fit.mape, fit.bias, "0.1", "2 cores")


def test_a_calibration_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    save(calibration(), path)
    assert load(path) == calibration()


def test_what_is_no_calibration_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_text("{}")
    with pytest.raises(ConfigError, match="is no step model"):
        load(path)
    save(replace(calibration(), format=99), path)
    with pytest.raises(ConfigError, match="format 99, this version reads 3: calibrate again"):
        load(path)
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load(tmp_path / "nothing.json")
