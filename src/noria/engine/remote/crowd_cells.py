"""Cells of the shared page that hold what the engine's intake decides by, so that others can decide as it would.

    version  |  18 numbers of 64 bits

The version is odd while the numbers are being written and 0 where there are none, so nobody takes half of two states
for one. A reader that finds the writer at work looks again, a few times; then it does without, and asks the engine.
"""

from __future__ import annotations

import math
import struct

from noria.config.engine import QueueConfig
from noria.engine.crowd import Charged, Crowd
from noria.engine.forecast import Forecast
from noria.engine.pace import Pace

_NUMBERS = struct.Struct("=18d")
_CELL_BYTES = 8
_MAX_LOOKS = 4

NUM_CELLS = 1 + _NUMBERS.size // _CELL_BYTES


class CrowdCells:
    """One writer at a time: the engine, or once it has ended the supervisor. cells: NUM_CELLS of 64 bits."""

    def __init__(self, cells: memoryview) -> None:
        self._version = cells[:1]
        self._numbers = cells[1:].cast("B")
        self._last: tuple[bytes, Crowd] | None = None  # what was read

    def put(self, crowd: Crowd) -> None:
        version = self._version[0]
        self._version[0] = version + 1
        self._numbers[:] = _NUMBERS.pack(*_numbers(crowd))
        self._version[0] = version + 2

    def clear(self) -> None:
        """Nobody is there; the one before may have ended in the middle of writing."""
        self._version[0] = 0

    def get(self) -> Crowd | None:
        for _ in range(_MAX_LOOKS):
            version = self._version[0]
            if version == 0:
                return None
            content = bytes(self._numbers)
            if version % 2 == 0 and self._version[0] == version:
                if self._last is None or self._last[0] != content:
                    self._last = (content, _crowd(_NUMBERS.unpack(content)))
                return self._last[1]
        return None


def _numbers(crowd: Crowd) -> tuple[float, ...]:
    forecast, limits = crowd.forecast, crowd.limits
    pace = forecast.pace
    return (
        crowd.num_queued,
        crowd.num_queued_tokens,
        crowd.num_live,
        crowd.expected_output,
        math.inf if limits.max_num_queued_reqs is None else limits.max_num_queued_reqs,
        math.inf if limits.max_num_queued_tokens is None else limits.max_num_queued_tokens,
        crowd.max_model_len,
        crowd.shares_prompts,
        *((math.nan,) * 3 if pace is None else (pace.fixed_s, pace.prompt_token_s, pace.output_token_s)),
        forecast.num_places,
        forecast.fresh_share,
        forecast.mean_prompt,
        forecast.share_whole,
        forecast.mean_stopped,
        crowd.charged.num_seqs,
        crowd.charged.num_tokens,
    )


def _crowd(numbers: tuple[float, ...]) -> Crowd:
    pace = None if math.isnan(numbers[8]) else Pace(*numbers[8:11])
    return Crowd(
        num_queued=int(numbers[0]),
        num_queued_tokens=int(numbers[1]),
        num_live=int(numbers[2]),
        expected_output=numbers[3],
        limits=QueueConfig(_bound(numbers[4]), _bound(numbers[5])),
        max_model_len=int(numbers[6]),
        shares_prompts=bool(numbers[7]),
        forecast=Forecast(pace, int(numbers[11]), *numbers[12:16]),
        charged=Charged(int(numbers[16]), int(numbers[17])),
    )


def _bound(number: float) -> int | None:
    return None if math.isinf(number) else int(number)
