"""A step model learns what steps take, and says how well."""

from __future__ import annotations

import random

import pytest

from noria.capacity.features import StepFeatures, features_of
from noria.capacity.fit import MeasuredStep, fit_steps
from noria.capacity.step_model import Regime
from noria.config.errors import ConfigError
from noria.core.plan import Work


def truth(features: StepFeatures) -> float:
    """Weights are read once; rows come in tiles of 8; attention costs what it looks at."""
    tiles = -(-features.num_tokens // 8)
    return (
        0.008
        + 0.0012 * tiles
        + 0.0004 * features.num_sampled
        + 2e-9 * features.chunk_context
        + 3e-8 * features.decode_context
    )


def draw_features(draw: random.Random) -> StepFeatures:
    num_decodes = draw.choice((0, 1, 2, 4, 8, 16, 32, draw.randrange(1, 64)))
    chunks = [(draw.randrange(2, 256), draw.randrange(0, 2048)) for _ in range(draw.choice((0, 0, 1, 2)))]
    if not num_decodes and not chunks:
        num_decodes = 1
    work = [Work(f"d{i}", draw.randrange(1, 1000), 1, (), True) for i in range(num_decodes)]
    work += [Work(f"c{i}", context, new, (), draw.random() < 0.5) for i, (new, context) in enumerate(chunks)]
    return features_of(work)


def measured(seed: int, count: int, scatter: float = 0.0) -> list[MeasuredStep]:
    draw = random.Random(seed)
    rows = [draw_features(draw) for _ in range(count)]
    return [MeasuredStep(row, truth(row) * draw.lognormvariate(0, scatter)) for row in rows]


def test_features_are_counts_of_the_work() -> None:
    work = [Work("a", 10, 1, (), True), Work("b", 4, 6, (), False), Work("c", 0, 1, (), True)]
    assert features_of(work) == StepFeatures(8, 2, 3, 6 * (4 + 3), 11 + 1)


def test_a_fit_foretells_steps_that_it_has_not_seen() -> None:
    fit = fit_steps(measured(1, 2000))
    assert fit.mape < 0.03
    unseen = measured(2, 500)
    errors = [abs(fit.model.seconds(step.features) / step.seconds - 1) for step in unseen]
    assert sum(errors) / len(errors) < 0.03
    assert abs(fit.bias) < 0.01


def test_outliers_do_not_bend_it() -> None:
    steps = measured(1, 2000, scatter=0.02)
    spoilt = [
        MeasuredStep(step.features, step.seconds * 8) if place % 25 == 0 else step
        for place, step in enumerate(steps)
    ]
    model = fit_steps(spoilt).model
    ratios = [model.seconds(step.features) / truth(step.features) for step in measured(3, 500)]
    assert 0.97 < sum(ratios) / len(ratios) < 1.03


def test_more_of_anything_never_takes_less_time() -> None:
    model = fit_steps(measured(4, 300, scatter=0.3)).model
    draw = random.Random(5)
    for _ in range(300):
        row = draw_features(draw)
        grown = row._replace(
            num_tokens=row.num_tokens + draw.randrange(100),
            chunk_context=row.chunk_context + draw.randrange(10**5),
            decode_context=row.decode_context + draw.randrange(10**4),
        )
        assert model.seconds(grown) >= model.seconds(row) > 0


def test_residuals_are_kept_by_regime_in_their_order() -> None:
    steps = measured(6, 400, scatter=0.1)
    model = fit_steps(steps).model
    regimes = [Regime.of(step.features) for step in steps]
    for regime in Regime:
        assert len(model.residuals[regime]) == regimes.count(regime) > 0


def test_the_box_holds_what_was_measured_and_nothing_beyond() -> None:
    steps = measured(7, 200)
    box = fit_steps(steps).model.box
    assert all(box.holds(step.features) for step in steps)
    most = max(step.features.num_tokens for step in steps)
    assert not box.holds(steps[0].features._replace(num_tokens=most + 1))


def test_too_few_steps_are_refused_with_their_number() -> None:
    with pytest.raises(ConfigError, match=r"29 measured steps are too few.* 30"):
        fit_steps(measured(1, 29))
