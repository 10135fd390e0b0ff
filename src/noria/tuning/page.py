"""The result as one HTML file, with the trade-off of throughput and latency as a plot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from noria.bench.html import STYLE, WITHOUT_PLOTS, plot_calls, plot_places
from noria.bench.plots import Plot
from noria.config.extras import plotly
from noria.tuning.choice import Point
from noria.tuning.tuner import Found
from noria.tuning.words import (
    CHANGE_HEADINGS,
    HEADINGS,
    SHIFT_HEADINGS,
    command,
    explored_words,
    headline,
    rows,
    sensitivity_rows,
    sentences,
    shift_rows,
)


def write_page(found: Found, path: Path) -> None:
    script = plotly()
    drawn = [] if script is None else [_trade_off(found, "ttft"), _trade_off(found, "itl")]
    head = "" if script is None else f"<script>{script.script.read_text(encoding='utf-8')}</script>"
    parts = [
        f"<h1>{escape(headline(found))}</h1>",
        f"<p><code>{escape(command(found))}</code></p>",
        *(f"<p>{escape(words)}</p>" for words in sentences(found)),
        plot_places(drawn),
        WITHOUT_PLOTS if script is None else "",
        "<h2>Settings</h2>",
        _table(HEADINGS, rows(found)),
        f"<p class='note'>{escape(explored_words(found))}</p>",
        _sensitivities(found),
        _shifts(found),
        plot_calls(drawn),
    ]
    path.write_text(
        f"<!doctype html><html lang='en'><meta charset='utf-8'><title>noria tune</title><style>{STYLE}</style>{head}"
        f"<body>{''.join(parts)}</body></html>",
        encoding="utf-8",
    )


def _sensitivities(found: Found) -> str:
    told = sensitivity_rows(found)
    if not told:
        return ""
    return "<h2>What one change does, by simulation</h2>" + _table(CHANGE_HEADINGS, told)


def _shifts(found: Found) -> str:
    told = shift_rows(found)
    if not told:
        return ""
    return "<h2>If the load is another, by simulation</h2>" + _table(SHIFT_HEADINGS, told)


def _table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in line) + "</tr>" for line in lines)
    return f"<table><tr>{head}</tr>{body}</table>"


def _trade_off(found: Found, name: str) -> Plot:
    limit_s = found.job.limits.by_name().get(name)
    front = sorted(found.front, key=lambda one: one.probe.figures.goodput.value)
    others = [one for one in found.points if one not in found.front]
    chosen = Point(found.chosen.setting, found.chosen.best)
    traces = [
        _markers("dominated", others, name, {"color": "#b8c4d0", "size": 6}),
        _markers("not dominated", front, name, {"color": "#2563a8", "size": 8}),
        _markers("chosen", [chosen], name, {"color": "#14803c", "size": 14, "symbol": "star"}),
    ]
    what = f"{name.upper()} P{100 * found.job.limits.share:g}"
    lines = [] if limit_s is None else [_limit_line(limit_s * 1e3)]
    layout = {
        "xaxis": {"title": {"text": "goodput, requests/s"}, "rangemode": "tozero"},
        "yaxis": {"title": {"text": f"{what}, ms"}, "type": "log"},
        "shapes": lines,
        "hovermode": "closest",
    }
    where = "on the engine" if found.is_real else "simulated"
    note = (
        f"Each point is a setting at a rate, {where}. Dominated: another is no worse in throughput, TTFT and ITL, and "
        "better in one by more than the intervals. The line is the limit."
    )
    return Plot(f"Throughput against {what}", note, traces, layout)


def _markers(label: str, points: Sequence[Point], name: str, marker: dict[str, Any]) -> dict[str, Any]:
    spans = [getattr(one.probe.figures, name) for one in points]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": label,
        "x": [one.probe.figures.goodput.value for one in points],
        "y": [span.value * 1e3 for span in spans],
        "text": [
            f"{one.setting.words()} at {one.probe.rate:.3g}/s: {one.probe.verdict.value}" for one in points
        ],
        "marker": marker,
    }


def _limit_line(limit_ms: float) -> dict[str, Any]:
    return {
        "type": "line",
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "y0": limit_ms,
        "y1": limit_ms,
        "line": {"color": "#b3261e", "dash": "dash"},
    }
