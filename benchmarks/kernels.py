"""The native kernels against what the machine can do, on a model's matrices with made-up weights.

    python -m benchmarks.kernels [--shapes 135m] [--isa avx2] [--threads 2] [--kinds Q8_0 Q4_0] [--rows 1 4 32 128]

One row of activations (decoding) reads weights that no cache holds and is set against the read bandwidth; more rows
are set against the products a second of the kernel's inner step from registers. Bandwidth and peaks are measured in
the same run, and times of products are processor times of the slowest thread, so that other processes count for little;
attention is timed by the clock, behind the ops of a small model, and wants a machine that does nothing else. They all
share caches, memory and, on virtual machines, the cores themselves: a share above 100 % says that its yardstick
was measured at a worse moment.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.attention import HEADS, AttentionCase, attention_cases, time_attention
from noria.kernels.native import _native
from noria.kernels.native.levels import use_level
from noria.kernels.ops import Heads

# [N, K] of queries, keys and values together, of the attention's output, gate and up, down, and the head.
SHAPES = {
    "135m": ((960, 576), (576, 576), (3072, 576), (576, 1536), (49152, 576)),  # SmolLM2-135M
    "1.7b": ((4096, 2048), (2048, 2048), (12288, 2048), (2048, 6144), (151936, 2048)),  # Qwen3-1.7B
}
FLOATS = ("float32", "bfloat16")
# Of the inner step; all other kinds multiply bytes as they are.
PEAKS = {"float32": "float32", "bfloat16": "float32", "Q8_0": "w8"}
# Of weights, and of what is read for the bandwidth: beyond any cache that a core has to itself.
COLD_BYTES = 160 << 20


@dataclass(frozen=True)
class Yardstick:
    read_bytes_s: float
    macs_s: dict[str, float]


@dataclass(frozen=True)
class Case:
    kind: str
    n: int
    k: int
    num_rows: int


@dataclass(frozen=True)
class Rate:
    bytes_s: float
    macs_s: float


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    kinds = (*FLOATS, "Q8_0", "Q5_0", "Q5_1", "Q4_0", "Q4_1")
    parser.add_argument(
        "--shapes", choices=tuple(SHAPES), default="135m", help="the model whose matrices these are"
    )
    parser.add_argument("--isa", default="auto", help="the instruction set level, as of noria serve")
    parser.add_argument("--threads", type=int, default=2, help="threads that share each product")
    parser.add_argument(
        "--kinds", nargs="+", choices=kinds, default=(*FLOATS, "Q8_0", "Q4_0"), help="of weights"
    )
    parser.add_argument(
        "--rows", nargs="+", type=int, default=(1, 4, 32, 128, 256), help="rows of activations"
    )
    parser.add_argument("--seconds", type=float, default=0.2, help="about how long each product is tried")
    arguments = parser.parse_args()
    console = Console()
    console.print(f"Level {use_level(arguments.isa).name}")
    yardstick = measure_yardstick(arguments.threads)
    cases = [
        Case(kind, n, k, num_rows)
        for kind in arguments.kinds
        for n, k in SHAPES[arguments.shapes]
        for num_rows in arguments.rows
    ]
    progress = track(cases, description="kernels", console=console, transient=True)
    rates = [measure(case, arguments.threads, arguments.seconds) for case in progress]
    show(console, yardstick, cases, rates)
    heads, attentions = HEADS[arguments.shapes], attention_cases()
    progress = track(attentions, description="attention", console=console, transient=True)
    times = [time_attention(case, heads, arguments.threads, arguments.seconds) for case in progress]
    show_attention(console, yardstick, heads, attentions, times)


def measure_yardstick(num_threads: int) -> Yardstick:
    stream = np.ones((1, COLD_BYTES), np.int8)
    macs_s = {kind: _native.peak_macs(kind, num_threads) for kind in ("float32", "w8", "w4")}
    return Yardstick(COLD_BYTES / _native.time_read(stream, num_threads, 20), macs_s)


def measure(case: Case, num_threads: int, seconds: float) -> Rate:
    rng = np.random.default_rng(0)
    first = packed(case, rng)
    copies = [first]
    if case.num_rows == 1:
        copies += [packed(case, rng) for _ in range(COLD_BYTES // first.num_bytes)]
    rows = rng.normal(size=(case.num_rows, case.k)).astype(np.float32)
    x = rows if case.kind in FLOATS else _native.QuantisedRows.of_floats(rows, bits=first.row_bits())
    out = np.empty((case.num_rows, case.n), np.float32)
    once_s = _native.time_products(copies, x, out, num_threads, 1)
    repeats = max(2, min(1000, int(seconds / once_s)))
    taken_s = _native.time_products(copies, x, out, num_threads, repeats) / len(copies)
    return Rate(first.num_bytes / taken_s, case.n * case.k * case.num_rows / taken_s)


def packed(case: Case, rng: np.random.Generator) -> _native.LinearWeight:
    """Numbers that no kernel's time depends on, in pages of its own."""
    if case.kind in FLOATS:
        weight = _native.LinearWeight.of_floats(case.kind, case.n, case.k)
        weight.put_floats(0, np.full((case.n, case.k), 0.5, np.float32))
        return weight
    weight = _native.LinearWeight.of_blocks(case.kind, case.n, case.k)
    block_bytes = {"Q4_0": 18, "Q4_1": 20, "Q5_0": 22, "Q5_1": 24, "Q8_0": 34}[case.kind]
    blocks = rng.integers(0, 256, (1, case.k // 32, block_bytes), np.uint8)
    blocks[:, :, 1] = 0x20  # a modest scale
    blocks[:, :, 3] = 0x20  # and minimum, where the type has one
    weight.put_blocks(0, case.kind, np.repeat(blocks.reshape(1, -1), case.n, axis=0))
    return weight


def show(console: Console, yardstick: Yardstick, cases: list[Case], rates: list[Rate]) -> None:
    macs = ", ".join(f"{kind} {rate / 1e9:.0f}" for kind, rate in yardstick.macs_s.items())
    console.print(f"Reading {yardstick.read_bytes_s / 1e9:.1f} GB/s; products in 1e9 a second: {macs}")
    table = Table(title="Native products")
    for name in ("weights", "N x K", "rows", "GB/s", "GMAC/s", "reached", "of"):
        table.add_column(name, justify="left" if name in ("weights", "of") else "right")
    for case, rate in zip(cases, rates, strict=True):
        reads = case.num_rows == 1
        peak = yardstick.macs_s[PEAKS.get(case.kind, "w4")]
        share = rate.bytes_s / yardstick.read_bytes_s if reads else rate.macs_s / peak
        table.add_row(
            case.kind,
            f"{case.n} x {case.k}",
            str(case.num_rows),
            f"{rate.bytes_s / 1e9:.1f}",
            f"{rate.macs_s / 1e9:.1f}",
            f"{share:.0%}",
            "bandwidth" if reads else "peak",
            end_section=case.num_rows == cases[-1].num_rows,
        )
    console.print(table)


def show_attention(
    console: Console, yardstick: Yardstick, heads: Heads, cases: list[AttentionCase], times: list[float]
) -> None:
    """Decodes read each key for few queries, chunks for many: each against what binds it."""
    table = Table(
        title=f"Native attention, {heads.num_heads} heads on {heads.num_kv_heads} of {heads.head_dim}"
    )
    for name in ("KV", "seqs", "new", "context", "ms", "GB/s", "GMAC/s", "reached", "of"):
        table.add_column(name, justify="left" if name in ("KV", "of") else "right")
    for case, taken_s in zip(cases, times, strict=True):
        shares = {
            "bandwidth": case.kv_bytes(heads) / taken_s / yardstick.read_bytes_s,
            "peak": case.macs(heads) / taken_s / yardstick.macs_s["float32"],
        }
        binding = max(shares, key=lambda name: shares[name])
        numbers = (case.num_sequences, case.num_new, case.context)
        table.add_row(
            case.kv_dtype,
            *map(str, numbers),
            f"{1e3 * taken_s:.3f}",
            f"{case.kv_bytes(heads) / taken_s / 1e9:.1f}",
            f"{case.macs(heads) / taken_s / 1e9:.1f}",
            f"{shares[binding]:.0%}",
            binding,
        )
    console.print(table)


if __name__ == "__main__":
    main()
