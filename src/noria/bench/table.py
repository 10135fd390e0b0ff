"""A run on the terminal: every figure with its interval, and what speaks for and against believing it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from noria.bench.certificate import count_words
from noria.bench.metrics import QUANTILES, Figure
from noria.bench.result import Report
from noria.bench.stats import Interval
from noria.bench.validity import Check

FIGURE_NAMES = {
    "ttft": "TTFT, from the send",
    "ttft_slo": "TTFT, from the intended arrival",
    "tpot": "TPOT, a request each",
    "itl": "ITL, all tokens pooled",
    "e2el": "end to end, from the send",
    "e2el_slo": "end to end, from the intended arrival",
    "queue_wait": "wait, in the engine's queue",
    "send_lag": "send lag, of the client",
}
_ANY_WIDTH = 1000
_NARROW_NAMES = 17  # columns, beside figures of five digits in a terminal of 80
_COLOURS = {True: ("green", "ok"), False: ("red", "no"), None: ("yellow", "?")}


def render(report: Report) -> list[RenderableType]:
    """What to print, one after the other."""
    parts: list[RenderableType] = [_Times(report), _rates(report), _validity(report.checks)]
    if report.run.certificate is not None:
        colour = {"pass": "green", "fail": "red"}.get(report.run.certificate.verdict.value, "yellow")
        parts.append(Text(certificate_words(report), style=colour))
    if report.run.is_interrupted:
        parts.append(Text("interrupted: figures are of what had come until then", style="yellow"))
    return parts


def window_words(report: Report) -> str:
    window = report.summary.window
    words = (
        f"milliseconds, and the {report.confidence:.0%} interval; {window.span_s:.1f} s of "
        f"{report.summary.duration_s:.1f} s: {window.why}"
    )
    return words + f", {window.num_warm_up} requests of warm-up left out" * bool(window.num_warm_up)


@dataclass(frozen=True, slots=True)
class _Times:
    """The figures, with each interval on one line where the terminal has room, else broken between its ends."""

    report: Report

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        wide = _times(self.report, is_narrow=False)
        needed = console.measure(wide, options=options.update(max_width=_ANY_WIDTH)).maximum
        yield wide if needed <= options.max_width else _times(self.report, is_narrow=True)


def _times(report: Report, is_narrow: bool) -> Table:
    title = f"{report.run.facts.name}: {load_words(report)}"
    table = Table(title=title, caption=window_words(report), caption_justify="left")
    table.add_column("", width=_NARROW_NAMES if is_narrow else None)
    for heading in ("mean", *(f"P{point}" for point in QUANTILES), "n\nn_eff"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, words in FIGURE_NAMES.items():
        if name in report.summary.figures:
            cells = _cells(report.summary.figures[name], ",\n" if is_narrow else ", ")
            table.add_row(words.replace(", ", "\n", 1), *cells)
    return table


def _cells(figure: Figure, between: str) -> list[str]:
    intervals = [figure.mean, *(figure.quantiles[point] for point in QUANTILES)]
    return [
        *(interval_ms(one).replace(" ", "\n", 1).replace(", ", between) for one in intervals),
        f"{figure.count}\n{figure.num_effective:.0f}",
    ]


def interval_ms(one: Interval) -> str:
    if math.isnan(one.value):
        return "-"
    value = _ms(one.value)
    return value if math.isnan(one.low) else f"{value} [{_ms(one.low)}, {_ms(one.high)}]"


def _ms(seconds: float) -> str:
    value = seconds * 1e3
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 1 else f"{value:.2f}"


def load_words(report: Report) -> str:
    run = report.run
    if run.is_closed:
        return f"{run.max_concurrency} at once, closed loop"
    most = "" if run.max_concurrency is None else f", at most {run.max_concurrency} at once"
    return f"{run.rate:.3g} requests/s, open loop{most}"


def _rates(report: Report) -> Table:
    table = Table(show_header=False)
    table.add_column("", justify="left")
    table.add_column("", justify="right")
    for name, value in rate_rows(report):
        table.add_row(name, value)
    return table


def rate_rows(report: Report) -> Iterator[tuple[str, str]]:
    summary = report.summary
    counts = ", ".join(f"{count} {status}" for status, count in summary.counts.items() if count)
    yield "requests", counts
    yield "answered", f"{summary.request_throughput:.2f} requests/s"
    yield "output, in the window", f"{summary.output_throughput:.1f} tokens/s"
    yield "output, whole run", f"{summary.output_throughput_total:.1f} tokens/s"
    yield "input, in the window", f"{summary.input_throughput:.1f} tokens/s"
    yield (
        "shared prefix of the workload",
        f"{report.run.workload['prefix_sharing_ratio']:.1%} of prompt tokens",
    )
    if summary.goodput is not None and summary.attainment_interval is not None:
        yield "limits", report.slo.words()
        yield "goodput", f"{summary.goodput:.2f} requests/s"
        part = summary.attainment_interval
        span = "" if math.isnan(part.low) else f" [{max(0, part.low):.1%}, {min(1, part.high):.1%}]"
        yield "attainment", f"{part.value:.1%}{span} of {summary.num_judged} arrivals"
    if summary.deadline_miss_frac is not None:
        yield "late tokens", f"{summary.deadline_miss_frac:.1%}"
    if summary.num_single_token:
        yield "answers of one token, without TPOT", str(summary.num_single_token)
    yield from _load_rows(report)


def _load_rows(report: Report) -> Iterator[tuple[str, str]]:
    load = report.summary.load
    if load is None:
        return
    yield "KV blocks in use", f"mean {load.kv_util_mean:.1%}, P99 of time {load.kv_util_p99:.1%}"
    yield "running, waiting on average", f"{load.num_running_mean:.1f}, {load.num_waiting_mean:.1f}"
    shares = (
        ("KV blocks that hold a reusable prefix", load.kv_cached_mean),
        ("prefix cache hits", load.prefix_hit_rate),
        ("preemptions a request", load.preempt_rate),
        ("tokens computed again", load.recompute_frac),
    )
    yield from ((name, f"{share:.1%}") for name, share in shares if share is not None)
    if load.queue_wait_mean_s is not None:
        yield "queue wait, by the server's count", f"mean {load.queue_wait_mean_s * 1e3:.1f} ms"


def _validity(found: tuple[Check, ...]) -> Table:
    table = Table(title="May these figures be believed?", title_justify="left", show_header=False)
    for check in found:
        colour, word = _COLOURS[check.is_ok]
        table.add_row(check.name, Text(word, style=colour), check.text)
    return table


def certificate_words(report: Report) -> str:
    """Only where there is a certificate."""
    told = report.run.certificate
    assert told is not None
    return (
        f"{told.verdict.value.upper()}: that {told.target:.0%} of requests keep {report.slo.words()}, at "
        f"{told.confidence:.0%} confidence ({count_words(told)}; look {told.look})"
    )
