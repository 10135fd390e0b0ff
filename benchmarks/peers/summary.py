"""From outcomes to lines of a table: medians, spreads, and Noria against the best peer."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.peers.engines import NORIA
from benchmarks.peers.points import POINTS, Better, Row
from benchmarks.peers.series import Outcome


@dataclass(frozen=True, slots=True)
class Cell:
    """values: one a round that went well, in order of rounds."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)


@dataclass(frozen=True, slots=True)
class Line:
    """A figure of all engines. ratio: above 1 where Noria is better, None where there is nothing to compare."""

    point: str
    row: Row
    cells: dict[str, Cell]
    best_peer: str | None
    ratio: float | None


def summarise(outcomes: Sequence[Outcome]) -> list[Line]:
    """Lines in the order of points and rows, without figures that no engine has."""
    lines = []
    for point in POINTS:
        mine = [outcome for outcome in outcomes if outcome.point == point.name]
        for row in point.rows:
            cells = _cells(mine, row.figure)
            if cells:
                lines.append(Line(point.name, row, cells, *compare(cells, row.better)))
    return lines


def compare(cells: dict[str, Cell], better: Better) -> tuple[str | None, float | None]:
    """The best peer by its median, and how many times better Noria's median is."""
    peers = {name: cell.median for name, cell in cells.items() if name != NORIA}
    if not peers or better is Better.NEITHER:
        return None, None
    best = max(peers, key=lambda name: peers[name] if better is Better.MORE else -peers[name])
    if NORIA not in cells:
        return best, None
    pair = (cells[NORIA].median, peers[best])
    above, below = pair if better is Better.MORE else pair[::-1]
    return best, above / below if below > 0 else None


def _cells(outcomes: Sequence[Outcome], figure: str) -> dict[str, Cell]:
    values: dict[str, list[float]] = {}
    for outcome in outcomes:
        if outcome.measured is not None and figure in outcome.measured.figures:
            values.setdefault(outcome.engine, []).append(outcome.measured.figures[figure])
    return {engine: Cell(tuple(found)) for engine, found in values.items()}
