"""What stop strings do to a text, said as simply as possible."""

from __future__ import annotations

from collections.abc import Sequence


def expected_output(
    text: str, stops: Sequence[str], include_stop: bool, num_protected: int = 0
) -> tuple[str, str | None]:
    """(output, stop) by trying every end of a match in turn; no match may end in the protected head."""
    for end in range(num_protected + 1, len(text) + 1):
        completed = [stop for stop in stops if text[:end].endswith(stop)]
        if completed:
            stop = max(completed, key=len)
            return text[: end if include_stop else end - len(stop)], stop
    return text, None
