"""What a run looks like on terminals of several widths."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from noria.bench.certificate import Certificate, Verdict
from noria.bench.outcome import Outcome, Status
from noria.bench.result import Report, make_report
from noria.bench.run import RunResult
from noria.bench.table import FIGURE_NAMES, certificate_words, render
from noria.bench.target import TargetFacts
from noria.config.benching import BenchOptions

SLOW = Outcome(
    index=0,
    arrival_s=0.0,
    sent_s=0.1,
    chunk_s=(15.0, 28.0, 41.0),
    chunk_tokens=(1, 1, 1),
    end_s=42.0,
    status=Status.OK,
    num_prompt=10,
    num_output=3,
    num_planned=10,
    num_asked=3,
)


def report_of(outcomes: list[Outcome]) -> Report:
    facts = TargetFacts(name="m", max_model_len=64, is_noria=True, fingerprint={})
    asked: dict[str, Any] = {"prefix_sharing_ratio": 0.0}
    run = RunResult(facts, asked, (), tuple(outcomes), (), (), None, 0.0, 1.0, False, None, False)
    return make_report(run, BenchOptions())


@pytest.fixture(scope="module")
def slow() -> Report:
    """Ten seconds and more for everything: figures of five digits with intervals."""
    slowness = [1 + index % 7 / 10 for index in range(60)]
    return report_of(
        [
            replace(
                SLOW,
                index=index,
                chunk_s=tuple(moment * by for moment in SLOW.chunk_s),
                end_s=SLOW.end_s * by,
            )
            for index, by in enumerate(slowness)
        ]
    )


def lines(report: Report, width: int) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width).print(render(report)[0])
    return out.getvalue().splitlines()


@pytest.mark.parametrize("width", [80, 100, 120, 160])
def test_figures_of_five_digits_fit_any_terminal_with_names_and_numbers_whole(
    slow: Report, width: int
) -> None:
    shown = lines(slow, width)
    assert max(map(len, shown)) <= width
    cells = {cell.strip() for line in shown for cell in line.strip("│").split("│")}
    for name in slow.summary.figures.keys() & FIGURE_NAMES.keys():
        what, which = FIGURE_NAMES[name].split(", ", 1)
        assert what in cells
        assert which in cells or any(which.startswith(cell) and " " in cell for cell in cells)
    mean = slow.summary.figures["ttft"].mean
    assert f"{mean.value * 1e3:.0f}" in cells
    ends = f"[{mean.low * 1e3:.0f},", f"{mean.high * 1e3:.0f}]"
    assert " ".join(ends) in cells or set(ends) <= cells


def test_where_there_is_room_an_interval_stays_on_one_line(slow: Report) -> None:
    mean = slow.summary.figures["ttft"].mean
    assert any(f"[{mean.low * 1e3:.0f}, {mean.high * 1e3:.0f}]" in line for line in lines(slow, 130))


@pytest.mark.parametrize(("needed", "words"), [(93, "93 needed"), (None, "no number would do")])
def test_a_certificate_says_requests_as_they_came_and_independent_ones_that_were_had_and_needed(
    slow: Report, needed: int | None, words: str
) -> None:
    told = Certificate(Verdict.UNDECIDED, 0.95, 0.95, 167, 29, 1, 4, needed)
    said = certificate_words(replace(slow, run=replace(slow.run, certificate=told)))
    assert f"1 of 167 requests bad, which tell as much as 29 independent ones; {words}" in said
