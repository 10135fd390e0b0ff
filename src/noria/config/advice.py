"""Turns problems into sentences; a setting is advised only after it was tried."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from noria.config.asked import EngineOptions
from noria.config.faults import Fault, Problem, Remedy
from noria.config.parse import with_settings
from noria.config.settle import Settlement


def explain(
    problems: Sequence[Problem], asked: EngineOptions, attempt: Callable[[EngineOptions], Settlement]
) -> list[str]:
    """One text a problem: what is wrong, then the changes that mend it without causing another.

    attempt: settles what is asked, in the same surroundings.
    """
    faults = {problem.fault for problem in problems}
    texts = []
    for problem in problems:
        tried = [(remedy, attempt(_changed(asked, remedy))) for remedy in problem.remedies]
        others = faults - {problem.fault}
        works = [remedy.words for remedy, outcome in tried if _faults_of(outcome) <= others]
        works += problem.otherwise
        texts.append(problem.text + (f". Would work: {'; or '.join(works)}" if works else ""))
    return texts


def _faults_of(outcome: Settlement) -> set[Fault]:
    return {problem.fault for problem in outcome.problems}


def _changed(asked: EngineOptions, remedy: Remedy) -> EngineOptions:
    return with_settings(
        asked, {name: True if text is None else text for name, text in remedy.changes.items()}
    )
