from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from benchmarks.peers import points, workload
from benchmarks.peers.engines import Command, Situation
from benchmarks.peers.points import LAUNCHES, POINTS, chosen
from benchmarks.peers.series import Outcome, Turn, take, turns
from benchmarks.peers.traffic import EngineFailed, OnDone, Play, Reply
from benchmarks.peers.workload import QUICK


@dataclass
class MadeUpEngine:
    """Answers at once: the first token after 100 ms, each other one after 10. Fails at its play `breaks_at`."""

    name: str = "noria"
    title: str = "Noria"
    version: str = "1"
    start_s: float = 1.0
    breaks_at: int | None = None
    situations: list[Situation] = field(default_factory=list)
    plays: list[Play] = field(default_factory=list)
    num_open: int = 0

    @contextmanager
    def start(self, situation: Situation) -> Iterator[MadeUpSession]:
        self.situations.append(situation)
        self.num_open += 1
        try:
            yield MadeUpSession(self, self.start_s)
        finally:
            self.num_open -= 1

    def command(self, situation: Situation) -> Command:
        return Command((), {})


@dataclass
class MadeUpSession:
    engine: MadeUpEngine
    ready_s: float

    def play(self, groups: Play, on_done: OnDone) -> list[Reply]:
        self.engine.plays.append(groups)
        if len(self.engine.plays) - 1 == self.engine.breaks_at:
            raise EngineFailed("it fell over")
        replies = []
        for number, group in enumerate(groups):
            for index, request in enumerate(group.requests):
                token_s = tuple(0.1 + 0.01 * i for i in range(request.max_tokens))
                num_prompt = len(request.prompt.split())
                replies.append(
                    Reply(number, index, 0.0, token_s, num_prompt, request.max_tokens, request.prompt[:9])
                )
                on_done()
        return replies

    def resident_bytes(self) -> int:
        return 250_000_000


def run(engine: MadeUpEngine, names: list[str], round_: int = 0) -> list[Outcome]:
    found: list[Outcome] = []
    for launch in chosen(names):
        take(Turn(round_, launch, engine), QUICK, 1, lambda _: None, found.append)
    assert engine.num_open == 0
    return found


def test_every_round_has_every_engine_at_every_launch_and_the_order_rotates() -> None:
    engines = [MadeUpEngine(name) for name in ("noria", "openvino", "vllm")]
    launches = chosen(["mixed-1", "mixed-8"])
    order = turns(engines, launches, num_rounds=3)
    names = ["".join(turn.engine.name[0] for turn in order[i : i + 3]) for i in range(0, len(order), 3)]
    assert names == ["nov", "ovn", "ovn", "vno", "vno", "nov"]
    assert [turn.round for turn in order] == [0] * 6 + [1] * 6 + [2] * 6
    assert [turn.launch for turn in order[:6]] == [launches[0]] * 3 + [launches[1]] * 3


def test_each_point_belongs_to_one_launch_and_no_launch_has_two_loads_of_one_workload() -> None:
    names = [point.name for point in POINTS]
    assert names == ["prefill", "same", "mixed-1", "mixed-8", "mixed-32", "long", "ready", "memory"]
    for launch in LAUNCHES:
        assert sum(point.name.startswith("mixed-") for point in launch.points) <= 1


def test_chosen_points_bring_only_their_launches() -> None:
    launches = chosen(["memory", "prefill"])
    assert [(launch.situation, [point.name for point in launch.points]) for launch in launches] == [
        (Situation.LOAD, ["prefill"]),
        (Situation.LEAN, ["memory"]),
    ]


def test_a_warm_up_comes_before_the_first_point_and_its_answer_does_not_count() -> None:
    engine = MadeUpEngine()
    [outcome] = run(engine, ["mixed-8"])
    assert engine.plays == [workload.warm_up(), workload.mixed(16, 8, seed=1)]
    assert outcome.measured is not None
    assert len(outcome.measured.replies) == 16


def test_each_round_has_its_own_prompts() -> None:
    engine = MadeUpEngine()
    run(engine, ["mixed-8"], round_=2)
    assert engine.plays[1] == workload.mixed(16, 8, seed=3)


@pytest.mark.parametrize(
    ("point", "figures"),
    [
        ("prefill", {points.PREFILL_RATE: 5110}),
        ("same", {points.IDENTICAL: 24}),
        ("ready", {points.READY: 1.0}),
        ("memory", {points.MEMORY: 250}),
        (
            "long",
            {
                points.SHORT_RATE: 4 * 200 / 2.09,
                "short: ITL P50, ms": 10,
                "short: ITL P95, ms": 10,
                "short: ITL P99, ms": 10,
                "short: ITL max, ms": 10,
                points.LONG_TTFT: 0.1,
            },
        ),
    ],
)
def test_a_point_makes_its_figures_of_replies(point: str, figures: dict[str, float]) -> None:
    [outcome] = run(MadeUpEngine(), [point])
    assert outcome.measured is not None
    assert outcome.measured.figures == pytest.approx(figures)


def test_a_point_gives_exactly_the_figures_of_its_rows() -> None:
    outcomes = run(MadeUpEngine(), [point.name for point in POINTS])
    found = [list(outcome.measured.figures) for outcome in outcomes if outcome.measured]
    assert found == [[row.figure for row in point.rows] for point in POINTS]


@pytest.mark.parametrize(("start_s", "num_starts"), [(1.0, 3), (70.0, 1)])
def test_a_quick_engine_is_started_several_times_to_know_how_long_it_takes(
    start_s: float, num_starts: int
) -> None:
    engine = MadeUpEngine(start_s=start_s)
    [outcome] = run(engine, ["ready"])
    assert outcome.starts_s == (start_s,) * num_starts
    assert engine.situations == [Situation.LEAN] * num_starts


def test_a_failure_is_an_outcome_of_every_point_left_and_the_engine_is_ended() -> None:
    engine = MadeUpEngine(breaks_at=2)  # after the warm-up and the first point
    first, *left = run(engine, ["prefill", "same", "mixed-1"])
    assert first.measured is not None
    assert [(o.point, o.measured, o.failure) for o in left] == [
        ("same", None, "it fell over"),
        ("mixed-1", None, "it fell over"),
    ]
