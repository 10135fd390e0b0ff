from __future__ import annotations

from collections.abc import Iterator

import pytest

from noria.core.outputs import Delta
from noria.engine.messages import GenerateRequest
from support_embedded import embedded_model
from support_server import FakeEngine, Server, says, served_model, serving
from support_serving import Serving
from support_serving import serving as serving_model


@pytest.fixture(scope="session")
def served() -> Iterator[Serving]:
    """The embedded model, served under the name that README.md calls it by."""
    with serving_model(
        model=embedded_model(),
        served_model_name="smollm2",
        max_model_len=2048,
        num_gpu_blocks_override=512,
        max_num_seqs=16,
    ) as running:
        yield running


def _says_or_calls(request: GenerateRequest) -> list[Delta]:
    call = '[{"name": "get_weather", "parameters": {"location": "Paris"}}]'
    return says("the wheel turns" if request.params.grammar is None else call)(request)


@pytest.fixture(scope="session")
def roomy() -> Iterator[Server]:
    """A server, "wheel", whose model says "the wheel turns" whatever it is asked, and stops; if it must call a tool it
    calls one that tells the weather. It takes prompts as long as other people's suites send them.
    """
    with serving(FakeEngine(_says_or_calls), model=served_model(max_model_len=8192)) as server:
        yield server
