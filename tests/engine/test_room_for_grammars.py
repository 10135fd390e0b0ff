"""What an API key may not have now costs nobody a grammar."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future

import pytest

from noria.config.errors import OverloadError
from noria.config.tenant import Tenant
from noria.core.clock import VirtualClock
from noria.core.outputs import Delta
from noria.engine.in_process import InProcessClient
from noria.engine.making import make_loop
from noria.engine.messages import EngineRequest, GenerateRequest
from noria.engine.records import Recorder
from noria.sampling.grammar import Grammar
from noria.sampling.params import SamplingParams
from noria.structured.api import NoConstraints
from support_engine import engine_config
from support_ledger_runner import LedgerRunner


class Asked(NoConstraints):
    def __init__(self) -> None:
        self.prepared: list[EngineRequest] = []

    def prepare(self, requests: Sequence[EngineRequest]) -> Future[None]:
        self.prepared += requests
        return Future()


def test_no_grammar_is_read_for_what_there_is_no_room_for() -> None:
    asked, config = Asked(), engine_config()
    client = InProcessClient(
        lambda publish: make_loop(config, LedgerRunner(4), VirtualClock(), Recorder(), publish, asked), config
    )
    tenant = Tenant("small", tokens_per_minute=2)
    plain = SamplingParams(temperature=0.0, max_tokens=1)
    held = SamplingParams(temperature=0.0, max_tokens=1, grammar=Grammar("regex", "a"))

    def submit(name: str, params: SamplingParams) -> Future[None]:
        return client.submit([GenerateRequest(name, (1, 2), params, 0, tenant=tenant)], ignore)

    submit("first", plain).result(timeout=20)
    with pytest.raises(OverloadError, match="2 tokens a minute"):
        submit("second", held).result(timeout=0)
    assert asked.prepared == []
    assert "second" not in client._preparations
    client.shutdown()


def ignore(deltas: list[Delta]) -> None:
    pass
