"""The plots of a report, as the data that plotly draws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from noria.bench.outcome import Outcome, Status
from noria.bench.result import Report
from noria.bench.stats import Values

_MOST_POINTS = 2000  # of a curve: more only make the file bigger
_MOST_BARS = 300


@dataclass(frozen=True, slots=True)
class Plot:
    """note: what to see in it. traces, layout: plotly's."""

    title: str
    note: str
    traces: list[dict[str, Any]]
    layout: dict[str, Any]


def plots(report: Report) -> list[Plot]:
    answered = sorted((one for one in report.run.outcomes if one.chunk_s), key=lambda one: one.arrival_s)
    if not answered:
        return []
    found = [_over_time(report, answered), _distributions(answered), _rates(answered), _timeline(answered)]
    if len(report.run.samples) > 1:
        found.insert(2, _engine(report))
    return found


def _axes(x: str, y: str, **more: Any) -> dict[str, Any]:
    return {"xaxis": {"title": {"text": x}}, "yaxis": {"title": {"text": y}, "rangemode": "tozero"}, **more}


def _over_time(report: Report, answered: Sequence[Outcome]) -> Plot:
    times = [one.arrival_s for one in answered]
    traces = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": name,
            "x": times,
            "y": values,
            "marker": {"size": 5, "opacity": 0.7},
        }
        for name, values in (
            ("TTFT from the intended arrival, ms", [one.ttft_slo_s * 1e3 for one in answered]),
            ("TPOT, ms", [(one.tpot_s or 0.0) * 1e3 for one in answered]),
        )
    ]
    window = report.summary.window
    shade = {
        "type": "rect",
        "xref": "x",
        "yref": "paper",
        "x0": window.start_s,
        "x1": window.end_s,
        "y0": 0,
        "y1": 1,
        "fillcolor": "rgba(80,140,255,0.08)",
        "line": {"width": 0},
    }
    layout = _axes("arrival, s", "ms", shapes=[shade])
    note = (
        "A flat cloud is a steady state; a rising one is a queue that grows. The shaded part is what counts."
    )
    return Plot("Each request", note, traces, layout)


def _distributions(answered: Sequence[Outcome]) -> Plot:
    series = {
        "TTFT from the intended arrival": np.array([one.ttft_slo_s for one in answered]),
        "TPOT": np.array([one.tpot_s for one in answered if one.tpot_s is not None]),
        "ITL, pooled": np.array([gap for one in answered for gap in one.token_gaps_s()]),
        "end to end": np.array([one.e2el_slo_s for one in answered]),
    }
    traces = [_distribution(name, values * 1e3) for name, values in series.items() if len(values)]
    layout = _axes("ms", "share of values below")
    layout["xaxis"]["type"] = "log"
    return Plot("Distributions", "How many are faster than that.", traces, layout)


def _distribution(name: str, values: Values) -> dict[str, Any]:
    ordered = np.sort(values)
    shares = np.arange(1, len(ordered) + 1) / len(ordered)
    kept = np.unique(np.linspace(0, len(ordered) - 1, _MOST_POINTS).astype(int))
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": ordered[kept].tolist(),
        "y": shares[kept].tolist(),
    }


def _engine(report: Report) -> Plot:
    samples = report.run.samples
    times = [sample.time_s for sample in samples]
    rows = (
        ("KV blocks in use, %", [100 * sample.kv_util for sample in samples], "y2"),
        ("running", [sample.num_running for sample in samples], "y"),
        ("waiting", [sample.num_waiting for sample in samples], "y"),
    )
    traces = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": name,
            "x": times,
            "y": values,
            "yaxis": axis,
            "line": {"shape": "hv"},
        }
        for name, values, axis in rows
    ]
    second = {"title": {"text": "%"}, "overlaying": "y", "side": "right", "rangemode": "tozero"}
    layout = _axes("s", "requests", yaxis2=second)
    return Plot("The engine", "What runs, what waits, and how full the KV cache is.", traces, layout)


def _rates(answered: Sequence[Outcome]) -> Plot:
    moments = np.array([moment for one in answered for moment in one.chunk_s])
    tokens = np.array([count for one in answered for count in one.chunk_tokens])
    seconds = np.arange(int(moments.max()) + 1)
    output = np.bincount(moments.astype(int), weights=tokens, minlength=len(seconds))
    came = np.bincount(np.array([int(max(0, one.arrival_s)) for one in answered]), minlength=len(seconds))
    traces = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": "output tokens/s",
            "x": seconds.tolist(),
            "y": output.tolist(),
        },
        {
            "type": "bar",
            "name": "arrivals/s",
            "x": seconds.tolist(),
            "y": came.tolist(),
            "yaxis": "y2",
            "opacity": 0.4,
        },
    ]
    second = {"title": {"text": "arrivals/s"}, "overlaying": "y", "side": "right", "rangemode": "tozero"}
    return Plot("Rates", "What came, and what came out.", traces, _axes("s", "tokens/s", yaxis2=second))


def _timeline(answered: Sequence[Outcome]) -> Plot:
    shown = answered[:_MOST_BARS]
    parts = (
        ("waiting for the first token", [one.arrival_s for one in shown], [one.ttft_slo_s for one in shown]),
        ("answer", [one.first_s for one in shown], [one.last_s - one.first_s for one in shown]),
    )
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "name": name,
            "base": bases,
            "x": spans,
            "y": list(range(len(shown))),
        }
        for name, bases, spans in parts
    ]
    bad = sum(one.status is not Status.OK for one in shown)
    note = f"The first {len(shown)} requests, in the order of arrival" + (
        f"; {bad} of them failed." if bad else "."
    )
    layout = _axes("s", "request", barmode="overlay", bargap=0.1)
    layout["yaxis"]["autorange"] = "reversed"
    return Plot("Timeline", note, traces, layout)
