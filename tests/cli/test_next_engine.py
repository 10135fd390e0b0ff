"""What an API process makes of the engine that comes in another's place."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from noria.cli.serve_api import follow
from noria.config.tokenizer import TokenizerSpec
from noria.engine.orders import Order
from support_remote import FACTS


class Watched:
    """A server that notes what it is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def follow(self, *sizes: Any) -> None:
        self.told.append(sizes)

    def obey(self, order: Order) -> None:
        self.told.append(order)


def told(**changes: Any) -> list[Any]:
    server = Watched()
    follow(replace(FACTS, **changes), FACTS, server)  # type: ignore[arg-type]
    return server.told


def test_other_sizes_are_taken_over() -> None:
    labels = {"block_size": "4", "num_gpu_blocks": "9"}
    assert told(max_model_len=99, cache_labels=labels) == [(99, labels)]
    assert told() == [(FACTS.max_model_len, FACTS.cache_labels)]


@pytest.mark.parametrize(
    "change",
    [
        {"model_name": "another"},
        {"tokenizer": TokenizerSpec(eos_token_ids=(1,))},
        {"vocab_size": 51},
        {"generation_defaults": {}},
    ],
)
def test_with_another_model_the_process_drains_so_that_one_that_knows_it_takes_its_place(
    change: dict,
) -> None:
    assert told(**change) == [Order.DRAIN]
