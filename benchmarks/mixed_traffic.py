"""Chats, JSON answers, embeddings and reranking together on one server, beside each of them alone.

    python -m benchmarks.mixed_traffic [--seconds 20] [--rounds 3] [--clients 4] [--output FILE]

Starts `noria serve` with the default model. Each kind has its clients, which send one request after another. In every
round each kind runs alone and then all run together; what they come to together is the sum of their rates, each over
that of the same kind alone with as many clients as all kinds have: 1 where kinds cost each other nothing beside
their share of the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import statistics
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.table import Table

from benchmarks.noria_server import HOST, noria_server
from benchmarks.pooling import texts_of

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA, "strict": True}}


@dataclass(frozen=True)
class Round:
    """Requests a second, by kind."""

    alone: dict[str, float]
    together: dict[str, float]

    @property
    def sum(self) -> float:
        return sum(self.together[kind] / self.alone[kind] for kind in self.alone)


def request_of(kind: str, number: int) -> tuple[str, dict[str, Any]]:
    """A route and a body; no two are alike."""
    texts = texts_of(9, number)
    messages = [{"role": "user", "content": f"Tell me of {texts[0][:200]}"}]
    chat = {"messages": messages, "max_tokens": 48, "temperature": 0}
    return {
        "chat": ("/v1/chat/completions", {**chat, "ignore_eos": True}),
        "json": ("/v1/chat/completions", {**chat, "response_format": FORMAT}),
        "embed": ("/v1/embeddings", {"input": texts[:8], "encoding_format": "base64"}),
        "rerank": ("/rerank", {"query": texts[8][:80], "documents": texts[:4]}),
    }[kind]


KINDS = ("chat", "json", "embed", "rerank")
_numbers = itertools.count()


async def run(port: int, clients: Mapping[str, int], seconds: float) -> dict[str, float]:
    """clients: how many of each kind. Requests a second that each kind came to."""
    counts = dict.fromkeys(clients, 0)
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=f"http://{HOST}:{port}", timeout=120, limits=limits) as http:
        end_s = time.monotonic() + seconds

        async def ask(kind: str) -> None:
            while time.monotonic() < end_s:
                path, body = request_of(kind, next(_numbers))
                answer = await http.post(path, json=body)
                answer.raise_for_status()
                counts[kind] += time.monotonic() < end_s

        await asyncio.gather(*(ask(kind) for kind, count in clients.items() for _ in range(count)))
    return {kind: count / seconds for kind, count in counts.items()}


async def measure(port: int, num_clients: int, seconds: float, num_rounds: int) -> list[Round]:
    rounds = []
    together = dict.fromkeys(KINDS, num_clients)
    await run(port, together, seconds / 4)  # warms up, and compiles the schema
    for _ in range(num_rounds):
        alone: dict[str, float] = {}
        for kind in KINDS:
            alone |= await run(port, {kind: num_clients * len(KINDS)}, seconds)
        rounds.append(Round(alone, await run(port, together, seconds)))
    return rounds


def show(rounds: list[Round]) -> None:
    table = Table("kind", "alone (requests/s)", "together", "share")
    for kind in KINDS:
        alone, together = (
            statistics.median(getattr(one, name)[kind] for one in rounds) for name in ("alone", "together")
        )
        table.add_row(kind, f"{alone:.2f}", f"{together:.2f}", f"{together / alone:.2f}")
    table.add_row("sum", "", "", f"{statistics.median(one.sum for one in rounds):.2f}")
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=int, default=4, help="of each kind, when all run together")
    parser.add_argument("--output")
    arguments = parser.parse_args()
    with noria_server([]) as port:
        rounds = asyncio.run(measure(port, arguments.clients, arguments.seconds, arguments.rounds))
    show(rounds)
    if arguments.output:
        Path(arguments.output).write_text(json.dumps([asdict(one) for one in rounds], indent=1))


if __name__ == "__main__":
    main()
