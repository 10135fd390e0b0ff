"""Constraints of several kinds as one: a request may have one of each, and chooses what all of them allow."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from noria.sampling.token_masks import Masks
from noria.structured.api import Constraints, grammar_of, rule_of
from noria.structured.futures import all_of

if TYPE_CHECKING:
    from noria.core.plan import StepPlan, StepResult
    from noria.engine.messages import EngineRequest


class JoinedConstraints:
    """Satisfies noria.structured.api.Constraints by those of grammars and those of decoding rules."""

    def __init__(self, grammars: Constraints, rules: Constraints) -> None:
        self._grammars = grammars
        self._rules = rules

    def prepare(self, requests: Sequence[EngineRequest]) -> Future[None]:
        asked = []
        if any(map(grammar_of, requests)):
            asked.append(self._grammars.prepare(requests))
        if any(map(rule_of, requests)):
            asked.append(self._rules.prepare(requests))
        return all_of(asked)

    def masks_for(self, plan: StepPlan) -> Masks | None:
        held = self._grammars.masks_for(plan)
        if held is not None and held.unready:  # a rule is asked once for each token
            work = tuple(one for one in plan.work if one.request_id not in held.unready)
            plan = replace(plan, work=work)
        return joined_masks(held, self._rules.masks_for(plan))

    def accept(self, result: StepResult) -> None:
        self._grammars.accept(result)
        self._rules.accept(result)

    def forget(self, request_ids: Sequence[str]) -> None:
        self._grammars.forget(request_ids)
        self._rules.forget(request_ids)

    def shutdown(self) -> None:
        self._grammars.shutdown()
        self._rules.shutdown()


def joined_masks(first: Masks | None, second: Masks | None) -> Masks | None:
    """What both allow. A request that is left with nothing fails."""
    if first is None or second is None:
        return first or second
    bits = np.concatenate([first.bits, second.bits])
    rows = {**first.rows, **{name: len(first.bits) + row for name, row in second.rows.items()}}
    failures = {**first.failures, **second.failures}
    for name in first.rows.keys() & second.rows.keys():
        bits[rows[name]] &= first.bits[first.rows[name]]
        if not bits[rows[name]].any():
            failures[name] = "its grammar and its decoding rule allow no token in common"
    ending_ids = {**second.ending_ids, **first.ending_ids}
    return Masks(bits, rows, failures, ending_ids, first.unready | second.unready)
