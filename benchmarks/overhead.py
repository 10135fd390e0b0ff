"""How much of a step is Python: what lies between native runs, while many sequences decode.

    python -m benchmarks.overhead [--model PATH] [--sequences 32] [--tokens 200] [--rounds 3] [--server]

With --server the same requests come over HTTP, streamed, from a client process on the same machine, so that
tokenising, streaming and the client itself take their part of the processor. Times are medians over the steps in
which all sequences decode; each round's are printed, for other work on the machine shows in their spread.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from starlette.applications import Starlette

from benchmarks.streams import stream_all
from noria import LLM, SamplingParams
from noria.cli.serve_api import served_model
from noria.cli.starting import share_interpreter
from noria.config.parse import from_mapping
from noria.config.serving import ServeOptions
from noria.engine.build import Engine, load_engine, start_engine
from noria.engine.facts import engine_facts
from noria.engine.opening import OpenedModel, open_model
from noria.kernels.batch import Batch
from noria.kernels.native.sampling import NativeSampler
from noria.models.build import BuiltModel
from noria.server.app import create_app
from noria.server.lifecycle import make_server
from noria.server.sockets import BACKLOG, bind_port
from noria.tokenize.tokenizer import build_tokenizer


@dataclass
class Pass:
    """One run of the model, and the sampling after it: how many sequences, and when, in seconds."""

    num_sequences: int
    start_s: float
    model_s: float
    sampling_s: float = 0.0


class Stopwatch:
    """Notes every run of the model and the choice of tokens that follows it: native code both."""

    def __init__(self) -> None:
        self.passes: list[Pass] = []
        BuiltModel.forward = self._timed_forward(BuiltModel.forward)  # type: ignore[method-assign]
        NativeSampler.sample = self._timed_sample(NativeSampler.sample)  # type: ignore[method-assign]

    def _timed_forward(self, forward: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
        def timed(model: BuiltModel, batch: Batch) -> np.ndarray:
            start_s = time.perf_counter()
            logits = forward(model, batch)
            self.passes.append(Pass(len(batch.context_lens), start_s, time.perf_counter() - start_s))
            return logits

        return timed

    def _timed_sample(self, sample: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any) -> Any:
            start_s = time.perf_counter()
            choices = sample(*arguments)
            self.passes[-1].sampling_s += time.perf_counter() - start_s
            return choices

        return timed


@dataclass(frozen=True)
class Shares:
    """Milliseconds of a step: from the start of one run of the model to the start of the next."""

    step_ms: float
    model_ms: float
    sampling_ms: float

    @property
    def python_ms(self) -> float:
        return self.step_ms - self.model_ms - self.sampling_ms

    @property
    def python_share(self) -> float:
        return self.python_ms / self.step_ms


def shares(passes: Sequence[Pass], num_sequences: int) -> Shares:
    """Of the steps in which all sequences took part, and so did they in the next."""
    pairs = [
        (one, following)
        for one, following in itertools.pairwise(passes)
        if one.num_sequences == following.num_sequences == num_sequences
    ]
    assert pairs, f"no two steps of {num_sequences} sequences in a row"
    return Shares(
        1e3 * statistics.median(following.start_s - one.start_s for one, following in pairs),
        1e3 * statistics.median(one.model_s for one, _ in pairs),
        1e3 * statistics.median(one.sampling_s for one, _ in pairs),
    )


def load_parser(description: str | None) -> argparse.ArgumentParser:
    """Of a command line that says how many sequences decode, and for how long."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", help="the model; default: the embedded one")
    parser.add_argument("--sequences", type=int, default=32, help="sequences that decode at once")
    parser.add_argument("--tokens", type=int, default=200, help="output tokens of each")
    return parser


def main() -> None:
    parser = load_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="repeats")
    parser.add_argument("--server", action="store_true", help="send the requests over HTTP")
    arguments = parser.parse_args()
    stopwatch = Stopwatch()
    measure = over_http if arguments.server else in_process
    table = Table("round", "step, ms", "model, ms", "sampling, ms", "Python, ms", "share of Python")
    console = Console()
    for number, passes in enumerate(measure(arguments, stopwatch), 1):
        found = shares(passes, arguments.sequences)
        cells = (found.step_ms, found.model_ms, found.sampling_ms, found.python_ms)
        table.add_row(str(number), *(f"{cell:.2f}" for cell in cells), f"{100 * found.python_share:.1f} %")
    console.print(table)


def prompts(num_sequences: int) -> list[str]:
    return [f"Number {number} of the list of things that turn is the" for number in range(num_sequences)]


def in_process(arguments: argparse.Namespace, stopwatch: Stopwatch) -> Iterator[list[Pass]]:
    params = SamplingParams(temperature=0, max_tokens=arguments.tokens, ignore_eos=True)
    with LLM(arguments.model, max_model_len=1024, max_num_seqs=arguments.sequences) as llm:
        for _ in range(arguments.rounds):
            stopwatch.passes.clear()
            llm.generate(prompts(arguments.sequences), params, show_progress=False)
            yield list(stopwatch.passes)


def over_http(arguments: argparse.Namespace, stopwatch: Stopwatch) -> Iterator[list[Pass]]:
    settings = {"max_model_len": 1024, "max_num_seqs": arguments.sequences, "uvicorn_log_level": "warning"}
    if arguments.model is not None:
        settings["model"] = arguments.model
    share_interpreter()  # as `noria serve` does
    with serving(from_mapping(ServeOptions, settings)) as (url, _):
        for _ in range(arguments.rounds):
            stopwatch.passes.clear()
            stream_all(url, prompts(arguments.sequences), arguments.tokens)
            yield list(stopwatch.passes)


@contextmanager
def serving(options: ServeOptions) -> Iterator[tuple[str, Engine]]:
    """A server and its engine in this process."""
    opened = open_model(options.engine.model)
    engine = start_engine(load_engine(opened, options.engine, lambda resolved: None))
    server = make_server(app_of(engine, opened, options), options.server)
    listener = bind_port("127.0.0.1", 0)
    listener.listen(BACKLOG)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", engine
    finally:
        server.should_exit = True
        thread.join()
        engine.client.shutdown()


def app_of(engine: Engine, opened: OpenedModel, options: ServeOptions) -> Starlette:
    tokenizer = build_tokenizer(opened.tokenizer)
    facts = engine_facts(opened, engine.resolved, options.engine)
    served = served_model(tokenizer, facts, options.server, 0)
    return create_app(engine.client, served, options.server, dict)


if __name__ == "__main__":
    main()
