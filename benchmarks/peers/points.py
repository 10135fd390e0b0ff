"""What is measured: each point plays something on a started engine and gives figures.

Points of one launch share an engine's start; no two of them share prompts, so no prefix cache carries over. The
points of the mixed workload, which do share them, have a launch each.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from benchmarks.peers import workload
from benchmarks.peers.engines import Session, Situation
from benchmarks.peers.figures import itl_ms, num_identical, output_rate, percentile, ttft_ms
from benchmarks.peers.traffic import OnDone, Play, Reply
from benchmarks.peers.workload import Sizes


class Better(Enum):
    MORE = "more"
    LESS = "less"
    NEITHER = "neither"  # no ratio


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table. form: how a value is written."""

    figure: str
    better: Better
    form: str = "{:.0f}"


@dataclass(frozen=True, slots=True)
class Visit:
    """A started engine at one point. starts_s: how long each start of this launch took, in seconds."""

    session: Session
    sizes: Sizes
    seed: int
    starts_s: tuple[float, ...]
    on_done: OnDone

    def play(self, groups: Play) -> list[Reply]:
        return self.session.play(groups, self.on_done)


@dataclass(frozen=True, slots=True)
class Measured:
    figures: dict[str, float]
    replies: list[Reply] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Point:
    name: str
    title: str
    rows: tuple[Row, ...]
    measure: Callable[[Visit], Measured]


@dataclass(frozen=True, slots=True)
class Launch:
    """num_starts: of a quick engine (see series.py), to know how long a start takes."""

    situation: Situation
    points: tuple[Point, ...]
    num_starts: int = 1


OUTPUT_RATE = "output, tok/s"
TTFT_P50, TTFT_P95 = "TTFT P50, ms", "TTFT P95, ms"
ITL_P50, ITL_P95, ITL_MAX = "ITL P50, ms", "ITL P95, ms", "ITL max, ms"


def _mixed(concurrency: int) -> Point:
    def measure(visit: Visit) -> Measured:
        count = visit.sizes.num_mixed[concurrency]
        replies = visit.play(workload.mixed(count, concurrency, visit.seed))
        waits, gaps = ttft_ms(replies), itl_ms(replies)
        figures = {
            OUTPUT_RATE: output_rate(replies),
            TTFT_P50: percentile(waits, 0.5),
            TTFT_P95: percentile(waits, 0.95),
            ITL_P50: percentile(gaps, 0.5),
            ITL_P95: percentile(gaps, 0.95),
            ITL_MAX: max(gaps),
        }
        return Measured(figures, replies)

    latencies = (TTFT_P50, TTFT_P95, ITL_P50, ITL_P95, ITL_MAX)
    rows = (
        Row(OUTPUT_RATE, Better.MORE),
        *(Row(name, Better.LESS, "{:.1f}" if name.startswith("ITL") else "{:.0f}") for name in latencies),
    )
    return Point(f"mixed-{concurrency}", f"mixed workload, {concurrency} at once", rows, measure)


PREFILL_RATE = "prompt, tok/s"


def _measure_prefill(visit: Visit) -> Measured:
    replies = visit.play(workload.prefill(visit.sizes.num_prefill, visit.seed))
    rates = [reply.num_prompt / reply.ttft_s for reply in replies[1:]]  # the first warms up
    return Measured({PREFILL_RATE: statistics.median(rates)}, replies)


IDENTICAL = f"identical of {workload.SAME_PROMPTS}"


def _measure_same(visit: Visit) -> Measured:
    alone, together = workload.same_answer(visit.sizes.same_tokens, visit.seed)
    first, second = visit.play(alone), visit.play(together)
    return Measured({IDENTICAL: num_identical(first, second)}, [*first, *second])


ITL_P99, LONG_TTFT, SHORT_RATE = "short: ITL P99, ms", "long: TTFT, slowest, s", "short together, tok/s"


def _measure_long(visit: Visit) -> Measured:
    replies = visit.play(workload.long_among_short(visit.seed))
    short = [reply for reply in replies if reply.group == 0]
    long = [reply for reply in replies if reply.group == 1]
    gaps = itl_ms(short)
    figures = {
        SHORT_RATE: output_rate(short),
        f"short: {ITL_P50}": percentile(gaps, 0.5),
        f"short: {ITL_P95}": percentile(gaps, 0.95),
        ITL_P99: percentile(gaps, 0.99),
        f"short: {ITL_MAX}": max(gaps),
        LONG_TTFT: max(ttft_ms(long)) / 1e3,
    }
    return Measured(figures, replies)


READY, MEMORY = "ready, s", "resident, MB"


def _measure_ready(visit: Visit) -> Measured:
    return Measured({READY: statistics.median(visit.starts_s)})


def _measure_memory(visit: Visit) -> Measured:
    """After requests have been served: what is allocated late counts too."""
    replies = visit.play(workload.mixed(4, 4, visit.seed))
    return Measured({MEMORY: visit.session.resident_bytes() / 1e6}, replies)


PREFILL = Point(
    "prefill", "a prompt of about 512 tokens", (Row(PREFILL_RATE, Better.MORE),), _measure_prefill
)
SAME = Point("same", "same answer alone and together", (Row(IDENTICAL, Better.NEITHER),), _measure_same)
LONG = Point(
    "long",
    "long prompts among short streams",
    (
        Row(SHORT_RATE, Better.MORE),
        Row(f"short: {ITL_P50}", Better.LESS, "{:.1f}"),
        Row(f"short: {ITL_P95}", Better.LESS, "{:.1f}"),
        Row(ITL_P99, Better.LESS, "{:.1f}"),
        Row(f"short: {ITL_MAX}", Better.LESS, "{:.1f}"),
        Row(LONG_TTFT, Better.LESS, "{:.2f}"),
    ),
    _measure_long,
)
START = Point("ready", "from start to ready, warm disk", (Row(READY, Better.LESS, "{:.2f}"),), _measure_ready)
RESIDENT = Point("memory", "16k tokens of KV cache", (Row(MEMORY, Better.LESS),), _measure_memory)

# The last one measures starts: by then files and caches of compilers are warm.
LAUNCHES = (
    Launch(Situation.LOAD, (PREFILL, SAME, _mixed(1))),
    Launch(Situation.LOAD, (_mixed(8),)),
    Launch(Situation.LOAD, (_mixed(32),)),
    Launch(Situation.FEW, (LONG,)),
    Launch(Situation.LEAN, (START, RESIDENT), num_starts=3),
)
POINTS = tuple(point for launch in LAUNCHES for point in launch.points)


def chosen(names: Sequence[str]) -> list[Launch]:
    """The launches that the named points need, with these points only."""
    launches = (
        Launch(launch.situation, tuple(p for p in launch.points if p.name in names), launch.num_starts)
        for launch in LAUNCHES
    )
    return [launch for launch in launches if launch.points]
