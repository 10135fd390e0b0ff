"""Decoding rules over HTTP, in a server as its users run it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from support_models import EOS_TOKEN_ID
from support_processes import Processes, processes, until
from support_rules import rules_installed

PROMPT = "The water wheel"
# Rules that answer have to in that time, too.
FLAGS = ("--backend", "torch", "--api-server-count", 2, "--rule-time-limit-s", 5)


@pytest.fixture(scope="module")
def server(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    directory = tmp_path_factory.mktemp("rules")
    with (
        rules_installed(directory / "packages"),
        processes(directory / "log.txt", tiny_model, *FLAGS) as running,
    ):
        yield running.ready()


def sampler(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


def test_a_request_says_which_rule_decides(server: Processes) -> None:
    stream = server.stream(PROMPT, 10, sampler=sampler("only", ids=[40, 41, 42]), ignore_eos=False).end()
    assert stream.token_ids == [40, 41, 42, EOS_TOKEN_ID]


@pytest.mark.parametrize("how", ["raises", "loops", "dies"])
def test_a_rule_in_trouble_ends_its_own_stream_with_an_error(server: Processes, how: str) -> None:
    expected = server.tokens(PROMPT, 40)
    good = server.stream(PROMPT, 40)
    bad = server.stream(PROMPT, 40, sampler=sampler("troubled", how=how, after=3)).end()
    assert len(bad.token_ids) == 3
    (error,) = bad.errors
    assert "the decoding rule 'troubled' failed" in error["message"]
    assert good.end().is_whole and good.token_ids == expected
    until(server.is_clean)


@pytest.mark.parametrize(
    ("asked", "status", "message"),
    [
        (sampler("only"), 400, "the decoding rule 'only' refuses its arguments: KeyError: 'ids'"),
        (sampler("none-such"), 400, "there is no decoding rule 'none-such'"),
        (sampler("gone"), 500, "A package installed on this server does not work"),
    ],
)
def test_what_cannot_be_made_is_answered_before_anything_is_sent(
    server: Processes, asked: dict[str, Any], status: int, message: str
) -> None:
    body = {"prompt": PROMPT, "max_tokens": 4, "stream": True, "sampler": asked}
    answer = httpx.post(f"{server.url}/v1/completions", json=body, timeout=60)
    assert answer.status_code == status
    assert message in answer.json()["error"]["message"]
