"""Progress bars on the terminal. Importing this takes a tenth of a second: see offline.progress."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

if TYPE_CHECKING:
    from typing_extensions import Self

# Standard error: what is asked for goes to standard output.
_console = Console(stderr=True)


@contextmanager
def bytes_bar(title: str) -> Iterator[Callable[[int, int], None]]:
    """A bar for (bytes done, bytes in all)."""
    with Progress(*_bytes_columns(), console=_console, transient=True) as progress:
        task = progress.add_task(title, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


@contextmanager
def share_bar(title: str) -> Iterator[Callable[[float], None]]:
    """A bar for the share that is done, 0 to 1, with the time that is left."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=_console, transient=True) as progress:
        task = progress.add_task(title, total=1.0)
        yield lambda done: progress.update(task, completed=done)


@contextmanager
def stage_bars() -> Iterator[Callable[[str, int, int], None]]:
    """A bar for each stage of (stage, bytes done, bytes in all)."""
    tasks: dict[str, TaskID] = {}
    with Progress(*_bytes_columns(), console=_console) as progress:

        def report(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = progress.add_task(stage, total=total)
            progress.update(tasks[stage], completed=done, total=total)

        yield report


class _CountingBar:
    """A bar over so many things, with what is told of it beside."""

    def __init__(self, title: str, total: int) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[told]}"),
            console=_console,
        )
        self._task = self._progress.add_task(title, total=total, told="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def _advance(self, count: int) -> None:
        self._progress.advance(self._task, count)

    def _tell(self, words: str) -> None:
        self._progress.update(self._task, told=words)

    def _rate(self, num_tokens: int) -> str:
        elapsed_s = max(self._progress.tasks[0].elapsed or 0.0, 1e-9)
        return f"{num_tokens / elapsed_s:,.0f} tokens/s"


class GenerationBar(_CountingBar):
    """A bar over outputs with the rates of prompt and output tokens."""

    def __init__(self, num_outputs: int) -> None:
        super().__init__("Outputs", num_outputs)
        self._num_prompt_tokens = 0
        self._num_output_tokens = 0

    def count_tokens(self, num_output_tokens: int) -> None:
        self._num_output_tokens += num_output_tokens
        self._show()

    def finish_output(self, num_prompt_tokens: int) -> None:
        """num_prompt_tokens: of the prompt, when this is its first output to end."""
        self._num_prompt_tokens += num_prompt_tokens
        self._advance(1)
        self._show()

    def _show(self) -> None:
        prompt, output = self._rate(self._num_prompt_tokens), self._rate(self._num_output_tokens)
        self._tell(f"prompt {prompt}, output {output}")


class ReadingBar(_CountingBar):
    """A bar over prompts that are read, with the rate of their tokens."""

    def __init__(self, num_prompts: int) -> None:
        super().__init__("Prompts", num_prompts)
        self._num_tokens = 0

    def finish(self, num_tokens: int, num_prompts: int) -> None:
        """num_tokens: of the prompts that were read."""
        self._num_tokens += num_tokens
        self._advance(num_prompts)
        self._tell(self._rate(self._num_tokens))


def _bytes_columns() -> tuple[ProgressColumn, ...]:
    return TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn()
