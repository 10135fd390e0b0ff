"""What a grammar and a decoding rule say of the same step."""

from __future__ import annotations

from typing import Any

import numpy as np

from noria.core.plan import StepPlan, Work
from noria.sampling.token_masks import Masks
from noria.structured.api import NoConstraints
from noria.structured.joined import JoinedConstraints

NO_BITS = np.empty((0, 1), dtype=np.uint32)


class Saying(NoConstraints):
    """The same of every step; keeps whom it was asked about."""

    def __init__(self, masks: Masks) -> None:
        self._masks = masks
        self.asked: list[list[str]] = []

    def masks_for(self, plan: StepPlan) -> Masks:
        self.asked.append([work.request_id for work in plan.work])
        return self._masks


def joined(grammars: Any, rules: Any) -> Masks | None:
    work = tuple(Work(name, 3, 1, (), samples=True) for name in ("waits", "goes"))
    return JoinedConstraints(grammars, rules).masks_for(StepPlan(0, (), work, (), ()))


def test_a_rule_is_not_asked_about_a_request_that_sits_the_step_out() -> None:
    rules = Saying(Masks(np.array([[6]], dtype=np.uint32), {"goes": 0}))
    masks = joined(Saying(Masks(NO_BITS, unready=frozenset({"waits"}))), rules)
    assert rules.asked == [["goes"]]
    assert masks is not None
    assert (masks.unready, masks.rows, masks.failures) == ({"waits"}, {"goes": 0}, {})


def test_what_a_grammar_and_a_rule_both_allow_may_be_chosen() -> None:
    grammars = Saying(Masks(np.array([[3], [9]], dtype=np.uint32), {"goes": 0, "waits": 1}))
    rules = Saying(Masks(np.array([[6], [6]], dtype=np.uint32), {"goes": 0, "waits": 1}))
    masks = joined(grammars, rules)
    assert rules.asked == [["waits", "goes"]]
    assert masks is not None
    assert masks.bits[masks.rows["goes"]].tolist() == [2]
    assert masks.failures == {"waits": "its grammar and its decoding rule allow no token in common"}
