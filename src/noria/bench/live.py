"""What a run shows while it goes on."""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from noria.bench.run import News

_REFRESH_PER_S = 4


class Progress:
    """A panel on standard error, on a terminal; nothing elsewhere. A context manager."""

    def __init__(self, is_shown: bool) -> None:
        console = Console(stderr=True)
        is_live = is_shown and console.is_terminal
        self._live = Live(console=console, auto_refresh=False, transient=True) if is_live else None

    def __enter__(self) -> Progress:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, news: News) -> None:
        if self._live is not None:
            self._live.update(panel(news), refresh=True)


def panel(news: News) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    table.add_row("sent", f"{news.num_sent}", "answered", f"{news.num_ok}", "in flight", f"{news.num_open}")
    table.add_row(
        "failed",
        f"{news.num_bad}",
        "requests/s",
        f"{news.request_rate:.2f}",
        "tokens/s",
        f"{news.token_rate:.0f}",
    )
    table.add_row(
        "TTFT P50, P95",
        f"{_ms(news.ttft_p50_ms)}, {_ms(news.ttft_p95_ms)}",
        "ITL P50",
        _ms(news.itl_p50_ms),
        "send lag P99",
        _ms(news.lag_p99_ms),
    )
    share, left_s = how_far(news)
    bar = (
        ProgressBar(total=1.0, completed=share, width=48) if share is not None else f"{news.elapsed_s:.0f} s"
    )
    foot = Table.grid(padding=(0, 2))
    foot.add_row(bar, "" if left_s is None else f"{left_s:.0f} s left", news.certificate)
    return Group(table, foot)


def how_far(news: News) -> tuple[float | None, float | None]:
    """The share that is done and the seconds left; None where nobody knows."""
    if news.duration_s is not None:
        share = min(1.0, news.elapsed_s / news.duration_s)
        return share, max(0.0, news.duration_s - news.elapsed_s)
    if not news.num_planned:
        return None, None
    num_ended = news.num_ok + news.num_bad
    share = num_ended / news.num_planned
    return share, news.elapsed_s * (1 - share) / share if num_ended else None


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} ms"
