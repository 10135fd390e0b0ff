"""One file with everything: tables, plots and the script that draws them, so that it can be sent to anybody."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

import orjson

from noria.bench.diff import flattened
from noria.bench.metrics import QUANTILES, Figure
from noria.bench.plots import Plot, plots
from noria.bench.result import Report, fingerprint_hash
from noria.bench.table import (
    FIGURE_NAMES,
    certificate_words,
    interval_ms,
    load_words,
    rate_rows,
    window_words,
)
from noria.config.extras import plotly

WITHOUT_PLOTS = "<p>Plots need plotly: pip install 'noria[report]', then measure again.</p>"
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; color: #1c2733; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
table { border-collapse: collapse; margin: .6rem 0; } 
caption { text-align: left; color: #5a6a7a; caption-side: bottom; }
th, td { padding: .25rem .7rem; border-bottom: 1px solid #dde3ea; text-align: right; vertical-align: top; }
th:first-child, td:first-child { text-align: left; } .words td { text-align: left; }
.ok { color: #14803c; } .no { color: #b3261e; font-weight: 600; } .open { color: #8a6100; }
.plot { height: 26rem; } .note { color: #5a6a7a; margin: 0; }
.interval { color: #5a6a7a; display: block; font-size: .85em; }
"""
_COLOURS = {True: "ok", False: "no", None: "open"}
_WORDS = {True: "ok", False: "no", None: "?"}


def write_html(report: Report, path: Path) -> list[str]:
    """Names of the files."""
    script = plotly()
    drawn = plots(report) if script is not None else []
    head = "" if script is None else f"<script>{script.script.read_text(encoding='utf-8')}</script>"
    parts = [
        f"<h1>{escape(report.run.facts.name)}: {escape(load_words(report))}</h1>",
        _certificate(report),
        "<h2>Times</h2>",
        _times(report),
        "<h2>Rates</h2>",
        _table(((name, value) for name, value in rate_rows(report)), "words"),
        "<h2>May these figures be believed?</h2>",
        _validity(report),
        plot_places(drawn),
        WITHOUT_PLOTS if script is None else "",
        f"<h2>Fingerprint {fingerprint_hash(report.fingerprint)}</h2>",
        _table(sorted(flattened(report.fingerprint).items()), "words"),
        plot_calls(drawn),
    ]
    title = escape(f"{report.run.facts.name}, noria bench")
    path.write_text(
        f"<!doctype html><html lang='en'><meta charset='utf-8'><title>{title}</title><style>{STYLE}</style>{head}"
        f"<body>{''.join(parts)}</body></html>",
        encoding="utf-8",
    )
    return [path.name]


def _certificate(report: Report) -> str:
    told = report.run.certificate
    if told is None:
        return ""
    colour = {"pass": "ok", "fail": "no"}.get(told.verdict.value, "open")
    return f"<p class='{colour}'>{escape(certificate_words(report))}</p>"


def _times(report: Report) -> str:
    head = "".join(
        f"<th>{name}</th>" for name in ("", "mean", *(f"P{p}" for p in QUANTILES), "max", "n", "n_eff")
    )
    rows = "".join(
        f"<tr><td>{escape(words)}</td>{_cells(report.summary.figures[name])}</tr>"
        for name, words in FIGURE_NAMES.items()
        if name in report.summary.figures
    )
    return f"<table><caption>{escape(window_words(report))}</caption><tr>{head}</tr>{rows}</table>"


def _cells(figure: Figure) -> str:
    cells = []
    for interval in (figure.mean, *(figure.quantiles[point] for point in QUANTILES)):
        value, _, span = interval_ms(interval).partition(" ")
        cells.append(f"{value}<span class='interval'>{span}</span>")
    cells += [f"{figure.maximum * 1e3:.1f}", str(figure.count), f"{figure.num_effective:.0f}"]
    return "".join(f"<td>{cell}</td>" for cell in cells)


def _table(rows: Iterable[tuple[str, object]], kind: str) -> str:
    lines = "".join(
        f"<tr><td>{escape(str(name))}</td><td>{escape(str(value))}</td></tr>" for name, value in rows
    )
    return f"<table class='{kind}'>{lines}</table>"


def _validity(report: Report) -> str:
    lines = "".join(
        f"<tr><td>{escape(check.name)}</td><td class='{_COLOURS[check.is_ok]}'>{_WORDS[check.is_ok]}</td>"
        f"<td>{escape(check.text)}</td></tr>"
        for check in report.checks
    )
    return f"<table class='words'>{lines}</table>"


def plot_places(drawn: Sequence[Plot]) -> str:
    """Where `plot_calls` draws them."""
    return "".join(_plot(number, plot) for number, plot in enumerate(drawn))


def _plot(number: int, plot: Plot) -> str:
    head = f"<h2>{escape(plot.title)}</h2><p class='note'>{escape(plot.note)}</p>"
    return f"{head}<div class='plot' id='p{number}'></div>"


def plot_calls(drawn: Sequence[Plot]) -> str:
    """The script that draws plots into their places."""
    base = {"margin": {"t": 20, "r": 60, "b": 45, "l": 60}, "legend": {"orientation": "h", "y": 1.12}}
    calls = []
    for number, plot in enumerate(drawn):
        data = orjson.dumps(plot.traces).decode().replace("</", "<\\/")
        layout = orjson.dumps({**base, **plot.layout}).decode()
        calls.append(f"Plotly.newPlot('p{number}', {data}, {layout}, {{responsive: true}});")
    return f"<script>{''.join(calls)}</script>" if calls else ""
