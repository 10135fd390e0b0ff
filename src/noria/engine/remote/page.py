"""A page of memory that the processes of one server share: who lives, and how the engine does.

It is read without asking anybody, so it also tells of a process that no longer answers.

    cells:  engine [0, 16)  |  crowd_cells [16, 35)  |  API process 0 [35, 43)  |  API process 1 [43, 51)  | ...

Every cell is a number of 64 bits with one writer at a time, so a reader never finds half of one.
"""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from noria.engine.crowd import Crowd
from noria.engine.messages import EngineStats
from noria.engine.remote.crowd_cells import NUM_CELLS, CrowdCells

_CELL_BYTES = 8
_ENGINE_CELLS = 16
_FIRST_API_CELL = _ENGINE_CELLS + NUM_CELLS
_API_CELLS = 8


class EngineState(IntEnum):
    DOWN = 0  # not there, or not yet
    SETTLED = 1  # its facts are known; its weights may still load
    READY = 2


class ApiState(IntEnum):
    STARTING = 0
    PREPARED = 1  # everything is imported; it waits for the engine
    SERVING = 2


class _Engine(IntEnum):
    INCARNATION = 0  # how many engines there have been; by the supervisor
    STATE = 1
    BEAT_NS = 2  # when the engine's process last gave a sign of life
    PROGRESS = 3
    STEP = 4
    NUM_RUNNING = 5
    NUM_WAITING = 6
    NUM_BLOCKS = 7
    NUM_BLOCKS_USED = 8
    NUM_BLOCKS_CACHED = 9
    PID = 10  # by the engine; 0 by the supervisor when it has ended


class _Api(IntEnum):
    INCARNATION = 0  # by the supervisor
    BEAT_NS = 1  # by the process
    STATE = 2  # by the process
    LOST_SESSION = 3  # by the engine: the session whose messages nobody took in time
    PID = 4  # by the process; 0 by the supervisor when it has ended


@dataclass(frozen=True, slots=True)
class EngineRow:
    """What the page says of the engine."""

    incarnation: int
    state: EngineState
    beat_age_s: float


class Page:
    """Made before the processes are forked; each of them then has it. clock_ns: one that all of them share."""

    def __init__(self, num_apis: int, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self.num_apis = num_apis
        self.started_s = int(time.time())  # of the server, in seconds since 1970
        self._clock_ns = clock_ns
        # Anonymous and shared: no name that could be left behind, or guessed.
        self._memory = mmap.mmap(-1, (_FIRST_API_CELL + _API_CELLS * num_apis) * _CELL_BYTES)
        self._cells = memoryview(self._memory).cast("q")
        self._crowd = CrowdCells(self._cells[_ENGINE_CELLS:_FIRST_API_CELL])

    # by the supervisor

    def engine_starts(self) -> int:
        """A new engine is on its way; returns its incarnation, from 1 on."""
        self._cells[_Engine.STATE] = EngineState.DOWN
        self._cells[_Engine.INCARNATION] += 1
        return self._cells[_Engine.INCARNATION]

    def engine_ended(self) -> None:
        """What it was working on is over."""
        self._cells[_Engine.STATE] = EngineState.DOWN
        for cell in (
            _Engine.PID,
            _Engine.NUM_RUNNING,
            _Engine.NUM_WAITING,
            _Engine.NUM_BLOCKS_USED,
            _Engine.NUM_BLOCKS_CACHED,
        ):
            self._cells[cell] = 0
        self._crowd.clear()

    def api_starts(self, slot: int) -> int:
        """A new API process is on its way; returns its incarnation, from 1 on."""
        self.put_api_state(slot, ApiState.STARTING)
        self.api_beat(slot)
        self._cells[_cell(slot, _Api.INCARNATION)] += 1
        return self._cells[_cell(slot, _Api.INCARNATION)]

    def api_ended(self, slot: int) -> None:
        """What it had asked for, nobody waits for any more."""
        self._cells[_cell(slot, _Api.PID)] = 0
        self._cells[_cell(slot, _Api.INCARNATION)] += 1

    # by the engine

    def put_engine_pid(self, pid: int) -> None:
        self._cells[_Engine.PID] = pid

    def engine_is_settled(self) -> None:
        self._cells[_Engine.STATE] = EngineState.SETTLED

    def engine_is_ready(self) -> None:
        self.engine_beat(0)
        self._cells[_Engine.STATE] = EngineState.READY

    def engine_beat(self, progress: int) -> None:
        """progress: a number that moves as long as work does."""
        self._cells[_Engine.PROGRESS] = progress
        self._cells[_Engine.BEAT_NS] = self._clock_ns()

    def put_stats(self, stats: EngineStats) -> None:
        cells = self._cells
        cells[_Engine.STEP] = stats.step
        cells[_Engine.NUM_RUNNING] = stats.num_running
        cells[_Engine.NUM_WAITING] = stats.num_waiting
        cells[_Engine.NUM_BLOCKS] = stats.num_blocks
        cells[_Engine.NUM_BLOCKS_USED] = stats.num_blocks_used
        cells[_Engine.NUM_BLOCKS_CACHED] = stats.num_blocks_cached

    def put_crowd(self, crowd: Crowd) -> None:
        self._crowd.put(crowd)

    def lose_session(self, slot: int, session: int) -> None:
        self._cells[_cell(slot, _Api.LOST_SESSION)] = session

    # by an API process

    def api_beat(self, slot: int) -> None:
        self._cells[_cell(slot, _Api.BEAT_NS)] = self._clock_ns()

    def put_api_state(self, slot: int, state: ApiState) -> None:
        self._cells[_cell(slot, _Api.STATE)] = state

    def put_api_pid(self, slot: int, pid: int) -> None:
        self._cells[_cell(slot, _Api.PID)] = pid

    # by anybody

    def pids(self) -> dict[str, int]:
        """Process ids of the processes that live, by name."""
        found = {"engine": self._cells[_Engine.PID]}
        found |= {f"api-{slot}": self._cells[_cell(slot, _Api.PID)] for slot in range(self.num_apis)}
        return {name: pid for name, pid in found.items() if pid}

    def engine(self) -> EngineRow:
        cells = self._cells
        return EngineRow(
            cells[_Engine.INCARNATION],
            EngineState(cells[_Engine.STATE]),
            self._age_s(cells[_Engine.BEAT_NS]),
        )

    def stats(self, is_alive: bool) -> EngineStats:
        """The engine's latest; is_alive is for the reader to say."""
        cells = self._cells
        return EngineStats(
            step=cells[_Engine.STEP],
            num_running=cells[_Engine.NUM_RUNNING],
            num_waiting=cells[_Engine.NUM_WAITING],
            num_blocks=cells[_Engine.NUM_BLOCKS],
            num_blocks_used=cells[_Engine.NUM_BLOCKS_USED],
            num_blocks_cached=cells[_Engine.NUM_BLOCKS_CACHED],
            is_alive=is_alive,
            progress=cells[_Engine.PROGRESS],
            beat_age_s=self._age_s(cells[_Engine.BEAT_NS]),
        )

    def crowd(self) -> Crowd | None:
        """What a request would meet in the engine; None where that is not known."""
        return self._crowd.get()

    def api_incarnation(self, slot: int) -> int:
        return self._cells[_cell(slot, _Api.INCARNATION)]

    def api_beat_age_s(self, slot: int) -> float:
        return self._age_s(self._cells[_cell(slot, _Api.BEAT_NS)])

    def are_apis_prepared(self) -> bool:
        return all(self.api_state(slot) is not ApiState.STARTING for slot in range(self.num_apis))

    def api_state(self, slot: int) -> ApiState:
        return ApiState(self._cells[_cell(slot, _Api.STATE)])

    def lost_session(self, slot: int) -> int:
        return self._cells[_cell(slot, _Api.LOST_SESSION)]

    def _age_s(self, beat_ns: int) -> float:
        return max(0.0, (self._clock_ns() - beat_ns) / 1e9)


def _cell(slot: int, cell: _Api) -> int:
    return _FIRST_API_CELL + _API_CELLS * slot + cell
