"""What a user who asked for a format should know of how far the native backend takes it."""

from __future__ import annotations

from collections.abc import Sequence

from noria.config.resolved import Choice
from noria.kernels.native.formats import GROUP, QUANTISED, Formats
from noria.kernels.ops import Matrix


def format_choices(formats: Formats, matrices: Sequence[Matrix]) -> tuple[Choice, ...]:
    """Rows for the table at start. matrices: all of the model."""
    if formats.quantization == "none":
        return ()
    done = [one.kind for one in matrices if one.kind in QUANTISED]
    rounded = [one for one in matrices if formats.quantises(one.kind, one.shape[1])]
    widths = {one.shape[1] for one in matrices if one.kind not in QUANTISED and one.shape[1] % GROUP}
    words = [f"asked for; {len(rounded)} of {len(matrices)} matrices are rounded while they are loaded"]
    if done:
        words.append(f"{len(done)} are quantised in the file ({', '.join(sorted(set(done)))}) and stay so")
    if widths:
        shown = ", ".join(map(str, sorted(widths)))
        left = len(matrices) - len(rounded) - len(done)
        words.append(f"{left} stay in 16 bits: their rows of {shown} numbers are no multiple of {GROUP}")
    is_notice = len(rounded) < len(matrices)
    return (Choice("quantization", formats.quantization, "; ".join(words), is_notice),)
