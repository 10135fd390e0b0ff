"""What HTTP costs the engine: the same requests to one alone, to one in the server's process, and to `noria serve`.

    python -m benchmarks.front_end [--model PATH] [--sequences 32] [--tokens 200] [--rounds 5] [--output FILE]

A step is timed from its start to the next one's while all sequences decode, as the engine recorded it. Over HTTP the
answers are streamed, and a client process on the same machine reads them, which takes its part of the processors too:
its processor time, and that of the API process, are told for each token. The three take turns; each round's medians
are printed, then the medians of those and their ratios.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.noria_server import DIRECT, HOST, noria_server
from benchmarks.overhead import load_parser, prompts, serving
from benchmarks.streams import stream_all
from noria import LLM, SamplingParams
from noria.config.parse import from_mapping
from noria.config.serving import ServeOptions


@dataclass(frozen=True)
class Found:
    """What a round came to: a step, and processor time for each token of the process that reads and the one that
    writes, 0 where there is none.
    """

    step_ms: float
    client_us: float = 0.0
    api_us: float = 0.0


def main() -> None:
    parser = load_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="repeats")
    parser.add_argument("--output", type=Path, help="where to write the figures as JSON")
    arguments = parser.parse_args()
    ways: dict[str, Callable[[argparse.Namespace], Found]] = {
        "engine alone": alone,
        "one process": one_process,
        "noria serve": served,
    }
    found: dict[str, list[Found]] = {way: [] for way in ways}
    console = Console()
    for number in range(1, arguments.rounds + 1):
        for way, measure in ways.items():
            found[way].append(measure(arguments))
            console.print(f"round {number}  {way:<12}  {found[way][-1].step_ms:.2f} ms a step")
    console.print(table_of(found))
    if arguments.output is not None:
        figures = {way: [asdict(one) for one in rounds] for way, rounds in found.items()}
        arguments.output.write_text(json.dumps(figures, indent=2) + "\n")


def table_of(found: dict[str, list[Found]]) -> Table:
    steps = {way: [one.step_ms for one in rounds] for way, rounds in found.items()}
    base = statistics.median(steps["engine alone"])
    table = Table("", "step, ms", "from", "to", "against alone", "client, us a token", "API process")
    for way, rounds in found.items():
        middle = statistics.median(steps[way])
        cells = (f"{value:.2f}" for value in (middle, min(steps[way]), max(steps[way])))
        client_us = statistics.median(one.client_us for one in rounds)
        api_us = statistics.median(one.api_us for one in rounds)
        table.add_row(way, *cells, f"{100 * (middle / base - 1):+.1f} %", f"{client_us:.0f}", f"{api_us:.0f}")
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


def alone(arguments: argparse.Namespace) -> Found:
    params = SamplingParams(temperature=0, max_tokens=arguments.tokens, ignore_eos=True)
    with LLM(**settings(arguments)) as llm:
        llm.generate(prompts(arguments.sequences), params, show_progress=False)
        return Found(step_ms(recorded(llm.client.recorder.steps()), arguments.sequences))


def one_process(arguments: argparse.Namespace) -> Found:
    options = from_mapping(ServeOptions, {**settings(arguments), "uvicorn_log_level": "warning"})
    with serving(options) as (url, engine):
        client_us = stream_us(url, arguments)
        return Found(step_ms(recorded(engine.client.recorder.steps()), arguments.sequences), client_us)


def recorded(steps: Iterable[Any]) -> list[tuple[int, float, int]]:
    return [(one.step, 1e3 * one.start_s, one.num_decode_seqs) for one in steps]


def served(arguments: argparse.Namespace) -> Found:
    flags = [
        f"--{name.replace('_', '-')}={value}"
        for name, value in settings(arguments).items()
        if name != "model"
    ]
    model = [] if arguments.model is None else [arguments.model]
    with noria_server([*model, *flags, "--disable-uvicorn-access-log"]) as port:
        url = f"http://{HOST}:{port}"
        before_s = api_s(url)
        client_us = stream_us(url, arguments)
        api_us = 1e6 * (api_s(url) - before_s) / num_tokens(arguments)
        with DIRECT.open(f"{url}/debug/timeline") as answer:
            events = json.load(answer)["traceEvents"]
    return Found(step_ms(traced(events), arguments.sequences), client_us, api_us)


def api_s(url: str) -> float:
    """Processor time of the API process so far, in seconds."""
    with DIRECT.open(f"{url}/metrics") as answer:
        text = answer.read().decode()
    (found,) = re.findall(r'^process_cpu_seconds_total\{process="api-0"\} (\S+)$', text, re.MULTILINE)
    return float(found)


def traced(events: Sequence[dict[str, Any]]) -> list[tuple[int, float, int]]:
    """Of a Chrome trace, whose times are microseconds."""
    steps = [event for event in events if event["name"].startswith("step ") and event["ph"] == "X"]
    return [
        (int(event["name"].removeprefix("step ")), event["ts"] / 1e3, event["args"]["decode sequences"])
        for event in steps
    ]


def stream_us(url: str, arguments: argparse.Namespace) -> float:
    """Have a client read all streams to their ends; what it takes for a token."""
    return 1e6 * stream_all(url, prompts(arguments.sequences), arguments.tokens) / num_tokens(arguments)


def num_tokens(arguments: argparse.Namespace) -> int:
    return int(arguments.sequences * arguments.tokens)


if __name__ == "__main__":
    main()
