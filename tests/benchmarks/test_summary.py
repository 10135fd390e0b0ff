from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path

import pytest
from benchmarks.peers import points, report
from benchmarks.peers.engines import Command, Situation
from benchmarks.peers.points import Better, Measured
from benchmarks.peers.report import Run
from benchmarks.peers.series import Outcome
from benchmarks.peers.summary import Cell, compare, summarise
from benchmarks.peers.traffic import Reply
from rich.console import Console


def outcome(round_: int, engine: str, point: str, **figures: float) -> Outcome:
    named = {getattr(points, name): value for name, value in figures.items()}
    return Outcome(round_, engine, point, 0.0, (1.0,), Measured(named))


def cells(**medians: float) -> dict[str, Cell]:
    return {name: Cell((value,)) for name, value in medians.items()}


@pytest.mark.parametrize(
    ("better", "expected"),
    [(Better.MORE, ("vllm", 3.2)), (Better.LESS, ("openvino", 0.25)), (Better.NEITHER, (None, None))],
)
def test_the_ratio_to_the_best_peer_is_above_one_where_noria_is_better(
    better: Better, expected: tuple[str | None, float | None]
) -> None:
    assert compare(cells(noria=800, openvino=200, vllm=250), better) == expected


def test_without_noria_or_without_peers_there_is_no_ratio() -> None:
    assert compare(cells(vllm=5.0, openvino=7.0), Better.MORE) == ("openvino", None)
    assert compare(cells(noria=5.0), Better.MORE) == (None, None)
    assert compare(cells(noria=0.0, vllm=0.0), Better.LESS) == ("vllm", None)


def test_lines_hold_the_values_of_all_rounds_in_the_order_of_points() -> None:
    found = [
        outcome(0, "noria", "mixed-8", OUTPUT_RATE=600, TTFT_P95=50),
        outcome(0, "vllm", "mixed-8", OUTPUT_RATE=100, TTFT_P95=1300),
        outcome(0, "noria", "prefill", PREFILL_RATE=3000),
        outcome(1, "noria", "mixed-8", OUTPUT_RATE=500, TTFT_P95=70),
        outcome(2, "noria", "mixed-8", OUTPUT_RATE=900, TTFT_P95=60),
    ]
    prefill, rate, wait = summarise(found)
    assert (prefill.point, prefill.cells, prefill.ratio) == ("prefill", {"noria": Cell((3000,))}, None)
    assert (rate.row.figure, rate.cells["noria"].values) == (points.OUTPUT_RATE, (600, 500, 900))
    assert (rate.cells["noria"].median, rate.best_peer, rate.ratio) == (600, "vllm", 6.0)
    assert (wait.row.figure, wait.best_peer) == (points.TTFT_P95, "vllm")
    assert wait.ratio == pytest.approx(1300 / 60)


@dataclass(frozen=True)
class NamedEngine:
    name: str
    title: str = "A title\nof two lines"
    version: str = "1.2"

    def start(self, situation: Situation) -> nullcontext[None]:
        return nullcontext()

    def command(self, situation: Situation) -> Command:
        return Command((self.name, situation.value), {"THREADS": "2"})


MACHINE = {
    "processor": "A processor",
    "instructions": ["avx2", "avx_vnni"],
    "cpus": 2,
    "memory_bytes": 8 << 30,
    "load_at_start": 0.04,
}


@dataclass
class MadeUp:
    """A run in which one peer failed once and another could not be set up."""

    run: Run = field(
        default_factory=lambda: Run(
            engines=[NamedEngine("noria"), NamedEngine("vllm")],
            problems={"openvino": "left out: pip ended with status 1"},
            machine=MACHINE,
            settings={"model": "m.gguf", "format": "q4_0"},
            outcomes=[
                outcome(0, "noria", "mixed-1", OUTPUT_RATE=220, ITL_MAX=9.25),
                outcome(1, "noria", "mixed-1", OUTPUT_RATE=240, ITL_MAX=9.75),
                outcome(0, "vllm", "mixed-1", OUTPUT_RATE=100, ITL_MAX=19),
                Outcome(1, "vllm", "mixed-1", 0.0, (), None, "vllm ended with status 3"),
            ],
        )
    )


def test_the_table_has_medians_spread_and_ratio_and_says_what_failed() -> None:
    console = Console(file=StringIO(), width=140)
    report.show(console, MadeUp().run)
    assert isinstance(console.file, StringIO)
    lines = [" ".join(line.replace("│", " ").split()) for line in console.file.getvalue().splitlines()]
    assert "output, tok/s 230 220-240 100 2.30" in lines
    assert "ITL max, ms 9.5 9.2-9.8 19.0 2.00" in lines
    assert "openvino: left out: pip ended with status 1" in lines
    assert "A processor, 2 CPUs (avx2, avx_vnni), 8.0 GiB, load 0.0 at start" in lines
    assert "noria 1.2; vllm 1.2" in lines
    assert "vllm, mixed-1, round 2: vllm ended with status 3" in lines


def test_the_file_has_every_raw_value_version_and_command(tmp_path: Path) -> None:
    made_up = MadeUp().run
    reply = Reply(0, 3, 0.1234567, (0.5, 0.75), num_prompt=4, num_output=2, text="ab")
    made_up.outcomes.append(
        Outcome(0, "vllm", "same", 5.0, (61.5,), Measured({points.IDENTICAL: 16}, [reply]))
    )
    report.write(tmp_path / "run.json", made_up)
    document = json.loads((tmp_path / "run.json").read_text())
    assert document["machine"] == MACHINE
    assert document["engines"]["vllm"]["version"] == "1.2"
    assert document["engines"]["vllm"]["commands"]["lean"] == "THREADS=2 vllm lean"
    assert document["problems"] == {"openvino": "left out: pip ended with status 1"}
    assert [line["ratio"] for line in document["summary"]] == [None, 2.3, 2.0]
    assert document["outcomes"][3]["failure"] == "vllm ended with status 3"
    assert document["outcomes"][4]["starts_s"] == [61.5]
    assert document["outcomes"][4]["replies"] == [
        {
            "group": 0,
            "index": 3,
            "sent_s": 0.12346,
            "token_s": [0.5, 0.75],
            "num_prompt": 4,
            "num_output": 2,
            "text": "ab",
        }
    ]
