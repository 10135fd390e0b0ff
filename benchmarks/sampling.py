"""The native sampler beside its definition in numpy: a step of 32 requests over a vocabulary of 49,152.

    python benchmarks/sampling.py [--requests 32] [--vocabulary 49152]

Rows are made up: a few likely tokens in front of a broad crowd, as language models give them. Times are processor
times of one thread, the shortest of many steps, so that other processes count for little; with N threads the native
sampler shares out the rows, and numpy does not.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
from rich.console import Console
from rich.table import Table

from noria.kernels.native import _native
from noria.kernels.native.sampling import NativeSampler
from noria.kernels.ops import Sampler
from noria.sampling.logprobs import Asked
from noria.sampling.params import SamplingParams
from noria.sampling.sampler import ReferenceSampler

CASES: dict[str, dict[str, float]] = {
    "greedy": {"temperature": 0.0},
    "temperature 1": {},
    "top_p 0.9": {"top_p": 0.9},
    "top_k 40": {"top_k": 40},
    "top_k 40, top_p 0.9": {"top_k": 40, "top_p": 0.9},
    "min_p 0.05": {"min_p": 0.05},
    "penalties": {"repetition_penalty": 1.1, "presence_penalty": 0.2, "frequency_penalty": 0.3},
}
NATIVE_STEPS, NUMPY_STEPS = 60, 5
NUM_KNOWN, NUM_PROMPT = 400, 300


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=32, help="rows of a step")
    parser.add_argument("--vocabulary", type=int, default=49_152, help="logits of a row")
    asked = parser.parse_args()
    rng = np.random.default_rng(0)
    logits = made_up(rng, asked.requests, asked.vocabulary)
    known = rng.integers(asked.vocabulary, size=NUM_KNOWN).tolist()
    native, numpy = NativeSampler(_native.Pool(1)), ReferenceSampler()
    table = Table(
        "", "native ms", "numpy ms", "ratio", title=f"{asked.requests} rows of {asked.vocabulary:,}"
    )
    for name, given in CASES.items():
        params = SamplingParams(**given)
        add(
            table,
            name,
            shortest_s(sampling(native, params, logits, known), NATIVE_STEPS),
            shortest_s(sampling(numpy, params, logits, known), NUMPY_STEPS),
        )
    wanted = [Asked(row, 5, 5) for row in range(asked.requests)]
    add(
        table,
        "logprobs of 5 more",
        shortest_s(lambda: native.logprobs(logits, wanted), NATIVE_STEPS),
        shortest_s(lambda: numpy.logprobs(logits, wanted), NUMPY_STEPS),
    )
    Console().print(table)


def made_up(rng: np.random.Generator, num_rows: int, size: int) -> np.ndarray:
    logits = (2 * rng.standard_normal((num_rows, size))).astype(np.float32)
    for row in logits:
        likely = rng.choice(size, min(size, 20), replace=False)
        row[likely] += 6 + 3 * rng.standard_exponential(likely.size).astype(np.float32)
    return logits


def sampling(
    sampler: Sampler, params: SamplingParams, logits: np.ndarray, known: list[int]
) -> Callable[[], object]:
    """One step: every request chooses from its row."""
    rows = range(len(logits))
    requests = [sampler.admit(params, row, known, NUM_PROMPT, ()) for row in rows]
    return lambda: sampler.sample(logits, rows, requests)


def shortest_s(step: Callable[[], object], num_steps: int) -> float:
    taken = []
    for _ in range(num_steps):
        start = time.thread_time()
        step()
        taken.append(time.thread_time() - start)
    return min(taken)


def add(table: Table, name: str, native_s: float, numpy_s: float) -> None:
    table.add_row(name, f"{native_s * 1e3:.2f}", f"{numpy_s * 1e3:.2f}", f"{numpy_s / native_s:.1f}")


if __name__ == "__main__":
    main()
