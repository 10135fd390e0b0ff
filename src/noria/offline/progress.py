"""Progress of long work, on a terminal or in a log. The bars are imported when one is shown."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext


def bytes_progress(title: str, is_shown: bool) -> AbstractContextManager[Callable[[int, int], None]]:
    """Takes (bytes done, bytes in all)."""
    if not is_shown:
        return nullcontext(lambda done, total: None)
    from noria.offline.bars import bytes_bar

    return bytes_bar(title)


def stages_progress(is_shown: bool) -> AbstractContextManager[Callable[[str, int, int], None]]:
    """Takes (stage, bytes done, bytes in all)."""
    if not is_shown:
        return nullcontext(lambda stage, done, total: None)
    from noria.offline.bars import stage_bars

    return stage_bars()
