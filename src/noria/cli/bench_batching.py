"""`noria bench batching`: the same requests with static and with continuous batching."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from html import escape
from statistics import mean

from rich.console import Console
from rich.table import Table

from noria.bench.files import run_directory
from noria.bench.lanes import Lanes, lanes_of
from noria.bench.picture import draw
from noria.cli.bench_in_process import Played, play_at_once
from noria.config.bench_others import BatchingCommandOptions
from noria.config.engine import AdmissionPolicy

_STATIC, _CONTINUOUS = AdmissionPolicy.STATIC.value, AdmissionPolicy.CONTINUOUS.value
Row = tuple[str, str, str, str]


def run(options: BatchingCommandOptions) -> int:
    directory = run_directory(options.result.out)
    batch = options.batch.batch
    played = {
        policy: play_at_once(
            options.engine,
            options.workload,
            options.amount.requests,
            admission_policy=policy,
            max_num_seqs=batch,
        )
        for policy in (_STATIC, _CONTINUOUS)
    }
    lanes = {policy: lanes_of(one.steps, batch) for policy, one in played.items()}
    rows = comparison(played, lanes)
    table = Table("", _STATIC, _CONTINUOUS, "continuous / static", title=_title(played[_STATIC], batch))
    for row in rows:
        table.add_row(*row)
    Console().print(table)
    picture = draw(lanes)
    (directory / "batching.svg").write_text(picture, encoding="utf-8")
    (directory / "batching.html").write_text(
        _page(_title(played[_STATIC], batch), picture, rows), encoding="utf-8"
    )
    print(f"{directory}: batching.svg, batching.html", file=sys.stderr)
    return 0


def comparison(played: Mapping[str, Played], lanes: Mapping[str, Lanes]) -> list[Row]:
    """Rows of the table: name, both values, their ratio."""
    static, continuous = played[_STATIC], played[_CONTINUOUS]
    same = sum(a.text == b.text for a, b in zip(static.outcomes, continuous.outcomes, strict=True))
    figures = (
        ("steps", len(static.steps), len(continuous.steps), "{:.0f}"),
        ("sequences a step", _mean_batch(static), _mean_batch(continuous), "{:.1f}"),
        ("places idle", lanes[_STATIC].idle, lanes[_CONTINUOUS].idle, "{:.1%}"),
        ("seconds", static.seconds, continuous.seconds, "{:.2f}"),
        ("output tokens/s", _rate(static), _rate(continuous), "{:.0f}"),
        ("mean TTFT, s", static.mean_ttft_s, continuous.mean_ttft_s, "{:.2f}"),
        ("mean time to the end, s", _mean_end(static), _mean_end(continuous), "{:.2f}"),
    )
    rows = [
        (name, form.format(first), form.format(second), f"{second / first:.2f}" if first else "-")
        for name, first, second, form in figures
    ]
    return [*rows, ("identical answers", f"{same} of {len(static.outcomes)}", "", "")]


def _mean_batch(played: Played) -> float:
    return mean(len(step["work"]) for step in played.steps)


def _rate(played: Played) -> float:
    return played.num_output / played.seconds


def _mean_end(played: Played) -> float:
    return mean(one.e2el_slo_s for one in played.outcomes)


def _title(played: Played, batch: int) -> str:
    lengths = [one.num_output for one in played.outcomes]
    return f"{len(lengths)} requests, answers of {min(lengths)} to {max(lengths)} tokens, {batch} places"


def _page(title: str, picture: str, rows: list[Row]) -> str:
    heads = "".join(f"<th>{name}</th>" for name in ("", _STATIC, _CONTINUOUS, "continuous / static"))
    lines = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return (
        f"<!doctype html><html lang='en'><meta charset='utf-8'><title>{escape(title)}</title>"
        "<style>body{font:15px/1.5 system-ui,sans-serif;max-width:66rem;margin:2rem auto;padding:0 1rem}"
        "td,th{padding:.2rem .8rem;text-align:right}td:first-child{text-align:left}</style>"
        f"<h1>{escape(title)}</h1><p>A row is a place in the batch. Dark: the prompt; light: the answer; grey: nobody "
        f"uses the place. A static batch waits for its longest member.</p>{picture}"
        f"<table><tr>{heads}</tr>{lines}</table></html>"
    )
