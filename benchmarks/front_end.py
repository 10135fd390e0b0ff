"""What HTTP costs the engine: the same requests to one alone, to one in the server's process, and to `noria serve`.

    python -m benchmarks.front_end [--model PATH] [--sequences 32] [--tokens 200] [--rounds 5] [--output FILE]

A step is timed from its start to the next one's while all sequences decode, as the engine recorded it. Over HTTP the
answers are streamed, and a client process on the same machine reads them, which takes its part of the processors too.
The three take turns; each round's medians are printed, then the medians of those and their ratios.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import statistics
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.noria_server import HOST, noria_server
from benchmarks.overhead import load_parser, prompts, serving, stream_all
from noria import LLM, SamplingParams
from noria.config.parse import from_mapping
from noria.config.serving import ServeOptions


def main() -> None:
    parser = load_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="repeats")
    parser.add_argument("--output", type=Path, help="where to write the figures as JSON")
    arguments = parser.parse_args()
    ways: dict[str, Callable[[argparse.Namespace], float]] = {
        "engine alone": alone,
        "one process": one_process,
        "noria serve": served,
    }
    found: dict[str, list[float]] = {way: [] for way in ways}
    console = Console()
    for number in range(1, arguments.rounds + 1):
        for way, measure in ways.items():
            found[way].append(measure(arguments))
            console.print(f"round {number}  {way:<12}  {found[way][-1]:.2f} ms a step")
    console.print(table_of(found))
    if arguments.output is not None:
        arguments.output.write_text(json.dumps({"step_ms": found}, indent=2) + "\n")


def table_of(found: dict[str, list[float]]) -> Table:
    medians = {way: statistics.median(times) for way, times in found.items()}
    base = medians["engine alone"]
    table = Table("", "step, ms", "from", "to", "against the engine alone")
    for way, times in found.items():
        cells = (f"{value:.2f}" for value in (medians[way], min(times), max(times)))
        table.add_row(way, *cells, f"{100 * (medians[way] / base - 1):+.1f} %")
    return table


def settings(arguments: argparse.Namespace) -> dict[str, Any]:
    model = {} if arguments.model is None else {"model": arguments.model}
    # A stated budget, so that all three take the same steps.
    return {
        **model,
        "max_model_len": 1024,
        "max_num_seqs": arguments.sequences,
        "max_num_batched_tokens": 256,
        "kv_cache_memory": "1GiB",
    }


def step_ms(starts: Iterable[tuple[int, float, int]], num_sequences: int) -> float:
    """Of (number, start in ms, sequences that decode): the median time to the next step, when all of them decode."""
    times = [
        next_ms - start_ms
        for (step, start_ms, num), (next_step, next_ms, next_num) in itertools.pairwise(starts)
        if next_step == step + 1 and num == next_num == num_sequences
    ]
    assert times, f"no two steps of {num_sequences} sequences in a row"
    return statistics.median(times)


def alone(arguments: argparse.Namespace) -> float:
    params = SamplingParams(temperature=0, max_tokens=arguments.tokens, ignore_eos=True)
    with LLM(**settings(arguments)) as llm:
        llm.generate(prompts(arguments.sequences), params, show_progress=False)
        return step_ms(recorded(llm.client.recorder.steps()), arguments.sequences)


def one_process(arguments: argparse.Namespace) -> float:
    options = from_mapping(ServeOptions, {**settings(arguments), "uvicorn_log_level": "warning"})
    with serving(options) as (url, engine):
        stream_from_elsewhere(url, arguments)
        return step_ms(recorded(engine.client.recorder.steps()), arguments.sequences)


def recorded(steps: Iterable[Any]) -> list[tuple[int, float, int]]:
    return [(one.step, 1e3 * one.start_s, one.num_decode_seqs) for one in steps]


def served(arguments: argparse.Namespace) -> float:
    flags = [
        f"--{name.replace('_', '-')}={value}"
        for name, value in settings(arguments).items()
        if name != "model"
    ]
    model = [] if arguments.model is None else [arguments.model]
    with noria_server([*model, *flags, "--disable-uvicorn-access-log"]) as port:
        url = f"http://{HOST}:{port}"
        stream_from_elsewhere(url, arguments)
        with urllib.request.urlopen(f"{url}/debug/timeline") as answer:
            events = json.load(answer)["traceEvents"]
    return step_ms(traced(events), arguments.sequences)


def traced(events: Sequence[dict[str, Any]]) -> list[tuple[int, float, int]]:
    """Of a Chrome trace, whose times are microseconds."""
    steps = [event for event in events if event["name"].startswith("step ") and event["ph"] == "X"]
    return [
        (int(event["name"].removeprefix("step ")), event["ts"] / 1e3, event["args"]["decode sequences"])
        for event in steps
    ]


def stream_from_elsewhere(url: str, arguments: argparse.Namespace) -> None:
    client = multiprocessing.get_context("spawn").Process(
        target=stream_all, args=(url, prompts(arguments.sequences), arguments.tokens)
    )
    client.start()
    client.join()
    assert client.exitcode == 0, f"the client ended with {client.exitcode}"


if __name__ == "__main__":
    main()
