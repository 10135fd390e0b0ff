"""Embeddings and reranking beside sentence-transformers, on one machine and one model.

    python -m benchmarks.pooling MODEL [--rounds 5] [--texts 256] [--threads 2] [--python PYTHON] [--output FILE]

MODEL: a sentence-transformers directory of the BERT class. --python: an interpreter that has sentence-transformers and
torch. Both sides are processes of their own that load once and then get the same texts in turns, their order changing
with each round; the table has medians, and Noria's rate over the other's. Neither has HTTP in between.

    embed     texts of lognormal length (median 24 words, sigma 0.8, 3 to 180)
    rerank    a query and 32 such texts each time, by the cosine of their embeddings
    cross     the same, read in pairs by a cross-encoder of random weights and MODEL's shape
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

WORDS = "river wheel turns bucket water mill stone grain slow bright field road house lamp night rain"
POINTS = ("embed", "rerank", "cross")
SIDES = ("noria", "sentence-transformers")
_DOCUMENTS = 32


@dataclass(frozen=True)
class Task:
    """texts: of embed. Else the first of them is the query of the others."""

    point: str
    texts: list[str]


@dataclass(frozen=True)
class Result:
    """Texts a second: the medians over the rounds, and every one of them."""

    point: str
    rates: dict[str, float]
    rounds: dict[str, list[float]]

    @property
    def ratio(self) -> float:
        return self.rates[SIDES[0]] / self.rates[SIDES[1]]


class Side:
    """A process that measures itself: a task in, the seconds that it took out."""

    def __init__(self, name: str, python: str, models: Sequence[str], num_threads: int) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": str(num_threads), "TOKENIZERS_PARALLELISM": "false"}
        self._process = subprocess.Popen(
            [python, "-m", "benchmarks.pooling_side", name, *models, str(num_threads)],
            cwd=Path(__file__).parents[1],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )

    def measure(self, task: Task) -> float:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(asdict(task)) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"a side ended with status {self._process.wait()}"
        return float(line)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def texts_of(count: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    lengths = [max(3, min(180, round(draw.lognormvariate(3.18, 0.8)))) for _ in range(count)]
    return [" ".join(draw.choices(WORDS.split(), k=length)) for length in lengths]


def measure(sides: dict[str, Side], point: str, num_texts: int, num_rounds: int) -> Result:
    """The first round warms up and does not count."""
    rounds: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(num_rounds + 1):
        texts = texts_of(num_texts if point == "embed" else _DOCUMENTS + 1, number)
        order = list(sides) if number % 2 else list(sides)[::-1]
        for name in order:
            seconds = sides[name].measure(Task(point, texts))
            if number:
                rounds[name].append(len(texts) / seconds)
    return Result(point, {name: statistics.median(rates) for name, rates in rounds.items()}, rounds)


def make_cross_encoder(model: str, directory: str, python: str) -> None:
    """A classifier of one label with random weights, in the shape of `model`."""
    code = (
        "import sys, transformers as t\n"
        "c = t.AutoConfig.from_pretrained(sys.argv[1]); c.num_labels = 1; c.architectures = None\n"
        "t.BertForSequenceClassification(c).save_pretrained(sys.argv[2])\n"
        "t.AutoTokenizer.from_pretrained(sys.argv[1]).save_pretrained(sys.argv[2])\n"
    )
    subprocess.run([python, "-c", code, model, directory], check=True)


def show(results: Sequence[Result]) -> None:
    table = Table("point", *(f"{name} (texts/s)" for name in SIDES), "ratio")
    for result in results:
        rates = (f"{result.rates[name]:.0f}" for name in SIDES)
        table.add_row(result.point, *rates, f"{result.ratio:.2f}")
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--texts", type=int, default=256)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--points", nargs="+", choices=POINTS, default=POINTS)
    parser.add_argument("--output")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as cross:
        make_cross_encoder(arguments.model, cross, arguments.python)
        pythons = {SIDES[0]: sys.executable, SIDES[1]: arguments.python}
        models = (arguments.model, cross)
        sides = {name: Side(name, pythons[name], models, arguments.threads) for name in SIDES}
        try:
            results = [measure(sides, point, arguments.texts, arguments.rounds) for point in arguments.points]
        finally:
            for side in sides.values():
                side.close()
    show(results)
    if arguments.output:
        Path(arguments.output).write_text(json.dumps([asdict(one) for one in results], indent=1))


if __name__ == "__main__":
    main()
