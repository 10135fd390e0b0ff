"""The field `sampler`: a decoding rule of an installed package, by name."""

from __future__ import annotations

from typing import Any

import pytest

from noria.sampling.rule import Rule
from support_server import Server

ROUTES = pytest.mark.parametrize("endpoint", ["chat", "complete"])


@ROUTES
@pytest.mark.parametrize(
    ("sampler", "expected"),
    [
        ({"name": "only", "arguments": {"ids": [1]}}, Rule("only", {"ids": [1]})),
        ({"name": "only"}, Rule("only")),
        ({}, None),
        (None, None),
    ],
)
def test_it_reaches_the_engine(
    server: Server, endpoint: str, sampler: dict[str, Any] | None, expected: Rule | None
) -> None:
    assert getattr(server, endpoint)(sampler=sampler).status_code == 200
    assert server.engine.submitted[-1].params.rule == expected


@ROUTES
@pytest.mark.parametrize(
    ("sampler", "message"),
    [
        ({"arguments": {}}, "sampler must have a name and may have arguments, got 'arguments'"),
        (
            {"name": "a", "argument": {}},
            "sampler must have a name and may have arguments, got 'name', 'argument'",
        ),
        ({"name": 3}, "sampler.name must be the name of a decoding rule, got 3"),
        ({"name": "a", "arguments": [1]}, "sampler.arguments must be a JSON object, got [1]"),
    ],
)
def test_a_sampler_that_is_none_is_refused_by_its_field(
    server: Server, endpoint: str, sampler: dict[str, Any], message: str
) -> None:
    answer = getattr(server, endpoint)(sampler=sampler)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error["message"], error["param"]) == (message, "sampler")
