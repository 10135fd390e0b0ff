"""What is going on: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

# The display shares the cores with what is measured.
_REFRESHES_PER_S = 2


class Screen:
    """A context: the bar is shown inside it."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.progress = Progress(
            SpinnerColumn(),
            MofNCompleteColumn(),
            BarColumn(bar_width=20),
            TimeElapsedColumn(),
            TextColumn("{task.description}"),
            console=console,
            refresh_per_second=_REFRESHES_PER_S,
            transient=True,
            disable=not console.is_terminal,
        )
        self.task = self.progress.add_task("", total=None)
        self.said = ""

    def __enter__(self) -> Screen:
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def tell(self, what: str) -> None:
        """What is being done right now; replaces what was told before."""
        self.progress.update(self.task, description=escape(what[: max(20, self.console.width - 50)]))
        stage = what.split(":")[0]
        if not self.console.is_terminal and stage != self.said:
            self.said = stage
            self.note(what)

    def note(self, line: str) -> None:
        """A line that stays."""
        self.console.print(line, markup=False, highlight=False)

    def begin(self, total: int) -> None:
        self.progress.reset(self.task, total=total)

    def advance(self) -> None:
        self.progress.advance(self.task)
