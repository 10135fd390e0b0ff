"""What else the measured steps allow is as far from the truth as they are, whatever they hold seldom."""

from __future__ import annotations

import numpy as np

from noria.capacity.uncertainty import NUM_REFITS, Rows, uncertainty


def test_what_few_steps_hold_is_never_foretold_to_take_for_ever() -> None:
    """Some of the drawn selections have none of the steps with the last column."""
    draw = np.random.default_rng(3)
    columns = np.column_stack([np.ones(160), draw.integers(1, 64, 160), np.zeros(160)])
    columns[-16:, 2] = draw.integers(1, 4, 16)
    truth = np.array([0.01, 0.001, 0.02])
    seconds = columns @ truth * np.exp(draw.normal(0.0, 0.05, 160))
    found = uncertainty(Rows(columns / seconds[:, None], np.ones(160), seconds), truth)
    assert found.refits.shape == (NUM_REFITS, 3)
    assert np.all(found.refits >= 0)
    assert np.all(found.refits <= 2 * truth)
    unseen = found.refits[:, 2] == 0
    assert 0.2 < unseen.mean() < 0.5  # (9/10)^10 of the draws are without that run
    assert np.allclose(found.refits[~unseen, 2], truth[2], rtol=0.2)
    assert found.drift < 0.1
