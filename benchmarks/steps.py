"""Where a step's time goes: every op of one step beside what the machine allows it.

    python benchmarks/steps.py [MODEL] [--isa avx2] [--threads 2] [--context 256] [--batches 1 8 32] [--prefill 512]

Decode steps of so many sequences, each with that context, and one step of a prompt. A line's limit is the longer of two
times: its weights and KV over the read bandwidth, its products over the peak of the instruction that the level
multiplies with; both are measured in the same run on as many threads. The median of the repeats is shown.
"""

from __future__ import annotations

import argparse
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from noria.config.asked import ModelOptions
from noria.config.hardware import probe_cpu
from noria.config.model import ModelConfig
from noria.engine.opening import open_model
from noria.kernels.batch import Batch
from noria.kernels.native import _native
from noria.kernels.native.backend import NativeBackend, NativeProgram
from noria.kernels.native.levels import use_level
from noria.kernels.ops import BackendOptions
from noria.models.build import cache_shape
from noria.models.registry import architecture
from noria.models.rope import rope_table
from noria.models.stored import StoredModel

BLOCK_SIZE = 16
READ_BYTES = 160 << 20  # beyond any cache that a core has to itself
ITEM_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4}
# Of the inner step that a line's products take; before the logits rows are shorts, and so they are for Q8_0.
BYTES, SHORTS, FLOATS = "w4", "w8", "float32"
NAMES = ("embed", "norm_qkv", "attend", "output", "norm_glu", "down", "lm_head")


@dataclass(frozen=True)
class Load:
    """What an op has to do in one step."""

    num_bytes: float
    num_products: float
    unit: str


@dataclass(frozen=True)
class Machine:
    read_bytes_s: float
    products_s: dict[str, float]

    def limit_s(self, load: Load) -> float:
        return max(load.num_bytes / self.read_bytes_s, load.num_products / self.products_s[load.unit])


@dataclass(frozen=True)
class Case:
    title: str
    num_sequences: int
    num_new: int  # tokens of each sequence
    context: int  # tokens of each with KV, the new ones included


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", nargs="?", help="a model that noria serves; the default one where not given")
    parser.add_argument("--isa", default="auto", help="the instruction set level, as of noria serve")
    parser.add_argument("--threads", type=int, default=probe_cpu().num_cpus, help="threads that compute")
    parser.add_argument(
        "--kv-cache-dtype",
        choices=tuple(ITEM_BYTES),
        default="float16",
        help="how keys and values are stored",
    )
    parser.add_argument("--context", type=int, default=256, help="tokens of a decoding sequence")
    parser.add_argument(
        "--batches", type=int, nargs="*", default=(1, 8, 32), help="sequences of a decode step"
    )
    parser.add_argument("--prefill", type=int, nargs="*", default=(512,), help="tokens of a prompt's step")
    parser.add_argument("--repeats", type=int, default=15, help="steps of each kind")
    arguments = parser.parse_args()
    cases = [Case(f"decode, batch {n}", n, 1, arguments.context) for n in arguments.batches]
    cases += [Case(f"prefill, {n} tokens", 1, n, n) for n in arguments.prefill]
    console = Console()
    console.print(f"Level {use_level(arguments.isa).name}")
    stored = StoredModel(open_model(ModelOptions(model=arguments.model)).checkpoint)
    program = load(stored, arguments.kv_cache_dtype, arguments.threads, cases)
    machine = measure_machine(arguments.threads)
    rates = ", ".join(f"{name} {rate / 1e9:.0f}" for name, rate in machine.products_s.items())
    console.print(f"Reading {machine.read_bytes_s / 1e9:.1f} GB/s; products in 1e9 a second: {rates}")
    for case in track(cases, description="steps", console=console, transient=True):
        loads = loads_of(stored, case, ITEM_BYTES[arguments.kv_cache_dtype])
        console.print(table_of(case, time_ops(program, case, arguments.repeats), loads, machine))


def load(stored: StoredModel, kv_dtype: str, num_threads: int, cases: Sequence[Case]) -> NativeProgram:
    config = stored.config
    num_blocks = max(case.num_sequences * -(-case.context // BLOCK_SIZE) for case in cases)
    shape = cache_shape(config, BLOCK_SIZE, num_blocks)
    backend = NativeBackend(BackendOptions("float32", "cpu", num_threads, shape, kv_dtype=kv_dtype))
    rope = backend.packer.pack_table(rope_table(config, max(case.context for case in cases)))
    model = architecture(config)(config, stored, backend.packer, rope)
    return backend.compile(model.forward)


def measure_machine(num_threads: int) -> Machine:
    stream = np.ones((1, READ_BYTES), np.int8)
    rates = {kind: _native.peak_macs(kind, num_threads) for kind in (FLOATS, SHORTS, BYTES)}
    return Machine(READ_BYTES / _native.time_read(stream, num_threads, 20), rates)


def batch_of(case: Case) -> Batch:
    """Tokens and KV of no meaning: an op's time depends on neither."""
    num_blocks = -(-case.context // BLOCK_SIZE)
    tables = np.arange(case.num_sequences * num_blocks, dtype=np.int32).reshape(
        case.num_sequences, num_blocks
    )
    positions = np.arange(case.context - case.num_new, case.context, dtype=np.int32)
    slots = tables[:, positions // BLOCK_SIZE] * BLOCK_SIZE + positions % BLOCK_SIZE
    starts = np.arange(case.num_sequences + 1, dtype=np.int32) * case.num_new
    return Batch(
        token_ids=np.arange(case.num_sequences * case.num_new, dtype=np.int32) % 1000,
        token_types=np.zeros(case.num_sequences * case.num_new, np.int32),
        positions=np.tile(positions, case.num_sequences),
        slots=slots.reshape(-1).astype(np.int32),
        query_starts=starts,
        context_lens=np.full(case.num_sequences, case.context, np.int32),
        block_tables=tables,
        logit_rows=starts[1:] - 1,
        hidden_rows=np.zeros(0, np.int32),
    )


def time_ops(program: NativeProgram, case: Case, repeats: int) -> dict[str, float]:
    """Seconds of each kind of op over all layers: the medians of the steps."""
    batch = batch_of(case)
    samples: dict[str, list[float]] = defaultdict(list)
    for repeat in range(repeats + 1):
        program.run(batch)
        totals: dict[str, float] = defaultdict(float)
        last = ""
        for name, seconds in program.op_times:
            shown = {"attend": "output", "norm_glu": "down"}[last] if name == "linear_add" else name
            totals[shown] += seconds
            last = name
        if repeat > 0:  # the first one takes memory
            for name, total in totals.items():
                samples[name].append(total)
    return {name: statistics.median(samples[name]) for name in NAMES}


def loads_of(stored: StoredModel, case: Case, item_bytes: int) -> dict[str, Load]:
    config = stored.config
    num_tokens = case.num_sequences * case.num_new
    loads = {
        "embed": Load(num_tokens * config.hidden_size * 4.0, 0, FLOATS),
        "attend": attention(config, case, item_bytes),
    }
    query, kv = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    hidden, inner, layers = config.hidden_size, config.intermediate_size, config.num_layers
    for name, tensor, numbers, rows in (
        ("norm_qkv", "layers.0.q.weight", layers * (query + 2 * kv) * hidden, num_tokens),
        ("output", "layers.0.o.weight", layers * hidden * query, num_tokens),
        ("norm_glu", "layers.0.gate.weight", layers * 2 * inner * hidden, num_tokens),
        ("down", "layers.0.down.weight", layers * inner * hidden, num_tokens),
        (
            "lm_head",
            "embedding" if config.tie_word_embeddings else "head",
            config.vocab_size * hidden,
            case.num_sequences,
        ),
    ):
        found = stored.tensor(tensor)
        bytes_each = found.num_bytes / (found.shape[0] * found.shape[1])
        loads[name] = Load(numbers * bytes_each, float(numbers) * rows, unit_of(name, found.kind))
    return loads


def unit_of(op: str, kind: str) -> str:
    if kind in ("F32", "F16", "BF16"):
        return FLOATS
    return SHORTS if op == "lm_head" or kind == "Q8_0" else BYTES


def attention(config: ModelConfig, case: Case, item_bytes: int) -> Load:
    before = case.context - case.num_new
    seen = case.num_new * before + case.num_new * (case.num_new + 1) / 2  # by all queries of a sequence
    products = 2.0 * seen * config.num_heads * config.head_dim * config.num_layers * case.num_sequences
    kv = config.num_kv_elements_per_token * item_bytes * case.context * case.num_sequences
    return Load(kv, products, FLOATS)


def table_of(case: Case, times: dict[str, float], loads: dict[str, Load], machine: Machine) -> Table:
    total_s, limits = sum(times.values()), {name: machine.limit_s(loads[name]) for name in NAMES}
    rate = case.num_sequences * case.num_new / total_s
    table = Table(title=f"{case.title}, context {case.context}: {total_s * 1e3:.2f} ms, {rate:.0f} tokens/s")
    for name in ("op", "ms", "share", "limit, ms", "reached"):
        table.add_column(name, justify="left" if name == "op" else "right")
    for name in (*NAMES, "all"):
        taken_s = total_s if name == "all" else times[name]
        limit_s = sum(limits.values()) if name == "all" else limits[name]
        row = (
            name,
            f"{taken_s * 1e3:.2f}",
            f"{taken_s / total_s:.0%}",
            f"{limit_s * 1e3:.2f}",
            f"{limit_s / taken_s:.0%}",
        )
        table.add_row(*row, end_section=name == NAMES[-1])
    return table


if __name__ == "__main__":
    main()
