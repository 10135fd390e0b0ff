"""What structured output costs: as many streams that each follow a JSON schema of their own as plain ones.

    python -m benchmarks.structured [--model PATH] [--sequences 32] [--tokens 150] [--rounds 5] [--output FILE]

Both have the same prompts and token counts and are sampled at temperature 1. A step is timed from its start to the next
one's while all sequences decode. The two take turns in one engine; each round's medians are printed, then the medians
of those and their ratio. Beside them: how long the masks of a step take, which passes while the model computes, and
what passes between a step's logits and its choices.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.front_end import recorded, settings, step_ms
from benchmarks.overhead import load_parser, prompts
from noria import LLM, SamplingParams
from noria.kernels.native.sampling import NativeSampler
from noria.models.build import BuiltModel
from noria.sampling.grammar import Grammar
from noria.structured.grammars import GrammarConstraints


class Clock:
    """Of every step that has masks: how long they took, and what passed from its logits to its choices, but for the
    choosing itself. In ms.
    """

    def __init__(self) -> None:
        self.masks_ms: list[float] = []
        self.waits_ms: list[float] = []
        self._logits_s = 0.0
        _wrap(GrammarConstraints, "masks_for", lambda start_s, masks: self._masks(start_s, masks))
        _wrap(BuiltModel, "forward", lambda start_s, outputs: self._logits())
        _wrap(NativeSampler, "sample", lambda start_s, choices: self._sampled(start_s))

    def _masks(self, start_s: float, masks: object) -> None:
        if masks is not None:
            self.masks_ms.append(1e3 * (time.perf_counter() - start_s))

    def _logits(self) -> None:
        self._logits_s = time.perf_counter()

    def _sampled(self, start_s: float) -> None:
        self.waits_ms.append(1e3 * (start_s - self._logits_s))


def _wrap(owner: Any, name: str, note: Callable[[float, Any], None]) -> None:
    method = getattr(owner, name)

    def timed(*arguments: Any) -> Any:
        start_s = time.perf_counter()
        result = method(*arguments)
        note(start_s, result)
        return result

    setattr(owner, name, timed)


def main() -> None:
    parser = load_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="repeats")
    parser.add_argument("--output", type=Path, help="where to write the figures as JSON")
    arguments = parser.parse_args()
    clock, console = Clock(), Console()
    ways = {"plain": plain(arguments), "structured": structured(arguments)}
    found: dict[str, list[float]] = {name: [] for name in (*ways, "plain waits", "masks", "structured waits")}
    with LLM(**settings(arguments)) as llm:
        for params in ways.values():  # schemas are read, code is warm
            run(llm, [replace(one, max_tokens=8) for one in params], arguments)
        for turn in range(arguments.rounds):
            for name, params in ways.items():
                clock.masks_ms.clear()
                clock.waits_ms.clear()
                found[name].append(run(llm, params, arguments))
                found[f"{name} waits"].append(statistics.median(clock.waits_ms))
            found["masks"].append(statistics.median(clock.masks_ms))
            console.print(turn, {name: round(values[-1], 3) for name, values in found.items()})
    middle = {name: statistics.median(values) for name, values in found.items()}
    console.print(table_of(middle))
    if arguments.output is not None:
        arguments.output.write_text(json.dumps({"medians_ms": middle, "rounds_ms": found}, indent=1))


def plain(arguments: argparse.Namespace) -> list[SamplingParams]:
    return [
        SamplingParams(temperature=1.0, seed=seed, max_tokens=arguments.tokens, ignore_eos=True)
        for seed in range(arguments.sequences)
    ]


def structured(arguments: argparse.Namespace) -> list[SamplingParams]:
    return [
        SamplingParams(
            temperature=1.0,
            seed=seed,
            max_tokens=arguments.tokens,
            ignore_eos=True,
            grammar=Grammar("json_schema", json.dumps(schema(seed))),
        )
        for seed in range(arguments.sequences)
    ]


def schema(number: int) -> dict[str, Any]:
    """A list of records so long that no output reaches its end."""
    record = {
        "type": "object",
        "properties": {
            f"name_{number}": {"type": "string", "maxLength": 60},
            "age": {"type": "integer", "minimum": 0, "maximum": 100 + number},
            "colours": {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "maxItems": 3},
            "address": {
                "type": "object",
                "properties": {
                    "street": {"type": "string"},
                    "code": {"type": "string", "pattern": "^[0-9]{5}$"},
                },
                "required": ["street", "code"],
                "additionalProperties": False,
            },
        },
        "required": [f"name_{number}", "age", "colours", "address"],
        "additionalProperties": False,
    }
    return {"type": "array", "items": record, "minItems": 1000}


def run(llm: LLM, params: list[SamplingParams], arguments: argparse.Namespace) -> float:
    """The median time of a step, in ms."""
    num_before = len(llm.client.recorder.steps())
    results = llm.generate(prompts(arguments.sequences), params, show_progress=False)
    lengths = {len(result.outputs[0].token_ids) for result in results}
    assert lengths == {params[0].max_tokens}, f"outputs of {lengths} tokens"
    return step_ms(recorded(llm.client.recorder.steps()[num_before:]), arguments.sequences)


def table_of(middle: dict[str, float]) -> Table:
    table = Table("", "ms a step")
    for name, value in middle.items():
        table.add_row(name, f"{value:.3f}")
    table.add_row("structured / plain", f"{middle['structured'] / middle['plain']:.4f}")
    return table


if __name__ == "__main__":
    main()
