"""Requests made up from the server's own OpenAPI page, right ones and wrong ones, get what the page promises."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from noria.core.outputs import Delta
from noria.engine.messages import EngineRequest, PoolRequest
from support_pooling import ALL, made_of
from support_server import FakeEngine, Server, says, served_model, serving

# A page cannot tell which fields contradict each other, or what fits into the context together: a request that it
# allows may well be refused. What it forbids must be, and nothing may be answered in a way that it does not name.
_UNCHECKED = "positive_data_acceptance"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    options = {"max_n": 8, "enable_tokenizer_info_endpoint": True, "trust_request_chat_template": True}
    with serving(FakeEngine(_answer), model=served_model(abilities=ALL), **options) as running:
        yield running


def _answer(request: EngineRequest) -> list[Delta]:
    """Text where text is asked for, and numbers where a prompt is only read."""
    return made_of(request) if isinstance(request, PoolRequest) else list(says("the wheel turns")(request))


@pytest.mark.timeout(1200)
def test_no_request_gets_an_answer_that_the_page_does_not_name(server: Server, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{server.url}/openapi.json"]
    command += ["--checks", "all", "--exclude-checks", _UNCHECKED, "--phases", "examples,coverage,fuzzing"]
    command += ["--max-examples", "12", "--seed", "1", "--generation-database", "none", "--no-color"]
    command += ["--request-timeout", "60"]
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert run.returncode == 0, run.stdout[-8000:] + run.stderr[-2000:]
    assert " passed" in run.stdout
