"""A run that was simulated itself is foretold to the dot; one of a slower machine shows by how much it was slower."""

from __future__ import annotations

import random

import pytest

from noria.capacity.run_file import Ended, Run
from noria.capacity.simulate import Deployment, simulate
from noria.capacity.step_model import StepModel
from noria.capacity.validation import Comparison, validate
from noria.config.errors import ConfigError
from support_capacity import poisson, simple_model
from support_engine import engine_config

CONFIG = engine_config(num_blocks=512, block_size=16, max_num_seqs=8, max_num_batched_tokens=128)


def made_up_run(model: StepModel) -> Run:
    found = simulate(Deployment(CONFIG, model), poisson(random.Random(1), 10, 200, 48, 20), seed=None)
    ended = {
        one.arrival.request_id: Ended(one.arrival, one.record)
        for one in found.outcomes
        if one.record is not None
    }
    return Run("test", CONFIG, found.steps[0], ended)


def by_name(rows: list[Comparison]) -> dict[str, Comparison]:
    return {row.name: row for row in rows}


def test_the_right_model_foretells_every_figure() -> None:
    rows = validate(made_up_run(simple_model()), simple_model(), num_runs=2)
    assert {row.name for row in rows} >= {"TTFT P95", "TPOT mean", "E2E mean", "output tokens/s"}
    for row in rows:
        assert row.simulated == pytest.approx(row.real, rel=1e-9, abs=1e-9), row.name
        assert row.error == pytest.approx(0, abs=1e-9)


def test_a_machine_that_was_slower_than_the_model_says_shows() -> None:
    slow = simple_model(decode_s=0.003, token_s=0.00045, fixed_s=0.006)
    rows = by_name(validate(made_up_run(slow), simple_model(), num_runs=1))
    assert rows["TPOT mean"].error < -0.25
    assert rows["TTFT P95"].error < -0.25


def test_a_run_without_answers_says_nothing() -> None:
    with pytest.raises(ConfigError, match="holds no answer"):
        validate(Run("test", CONFIG, (), {}), simple_model())
