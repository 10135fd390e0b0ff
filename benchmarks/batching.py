"""Static against continuous batching on the default model: the same requests, very uneven output lengths.

    python benchmarks/batching.py [--requests 48] [--max-num-seqs 8]

Prints steps, time and output rate of both, and their ratio. Steps are exact; times depend on the machine.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from noria import LLM, SamplingParams
from noria.config.engine import AdmissionPolicy


@dataclass
class Run:
    num_steps: int
    seconds: float
    num_tokens: int
    mean_batch: float
    outputs: list[list[int]]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=48, help="number of requests")
    parser.add_argument("--max-num-seqs", type=int, default=8, help="most sequences in a step")
    parser.add_argument("--seed", type=int, default=1, help="draws prompts and lengths")
    arguments = parser.parse_args()
    prompts, params = workload(arguments.requests, arguments.seed)
    runs = {policy: measure(policy, prompts, params, arguments.max_num_seqs) for policy in AdmissionPolicy}
    show(runs, [p.max_tokens or 0 for p in params])


def workload(count: int, seed: int) -> tuple[list[str], list[SamplingParams]]:
    """One request in six has a long output, the others a short one."""
    draw = random.Random(seed)
    lengths = [draw.randint(96, 128) if i % 6 == 0 else draw.randint(4, 16) for i in range(count)]
    prompts = [f"Item {draw.randint(1, 999)} of the list is" for _ in range(count)]
    params = [SamplingParams(temperature=0, max_tokens=length, ignore_eos=True) for length in lengths]
    return prompts, params


def measure(
    policy: AdmissionPolicy, prompts: list[str], params: list[SamplingParams], max_num_seqs: int
) -> Run:
    with LLM(max_model_len=512, max_num_seqs=max_num_seqs, admission_policy=policy.value) as llm:
        llm.generate(prompts[0], SamplingParams(temperature=0, max_tokens=4), show_progress=False)
        num_before = len(llm.client.recorder.steps())
        start_s = time.perf_counter()
        results = llm.generate(prompts, params)
        seconds = time.perf_counter() - start_s
        steps = llm.client.recorder.steps()[num_before:]
    outputs = [result.outputs[0].token_ids for result in results]
    batches = [len(step.work) for step in steps]
    return Run(len(steps), seconds, sum(map(len, outputs)), statistics.mean(batches), outputs)


def show(runs: dict[AdmissionPolicy, Run], lengths: list[int]) -> None:
    static, continuous = runs[AdmissionPolicy.STATIC], runs[AdmissionPolicy.CONTINUOUS]
    table = Table(title=f"{len(lengths)} requests, outputs of {min(lengths)} to {max(lengths)} tokens")
    for heading in ("", "static", "continuous", "continuous / static"):
        table.add_column(heading, justify="right" if heading else "left")
    rows = [
        ("steps", static.num_steps, continuous.num_steps, "{:d}"),
        ("sequences a step", static.mean_batch, continuous.mean_batch, "{:.1f}"),
        ("seconds", static.seconds, continuous.seconds, "{:.1f}"),
        (
            "output tokens/s",
            static.num_tokens / static.seconds,
            continuous.num_tokens / continuous.seconds,
            "{:.0f}",
        ),
    ]
    for name, first, second, form in rows:
        table.add_row(name, form.format(first), form.format(second), f"{second / first:.2f}")
    console = Console()
    console.print(table)
    same = sum(a == b for a, b in zip(static.outputs, continuous.outputs, strict=True))
    console.print(f"identical outputs: {same} of {len(lengths)}")


if __name__ == "__main__":
    main()
