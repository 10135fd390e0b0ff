"""An engine's host and its clients, in one process: what `noria serve` has in several."""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from noria.config.tokenizer import GgufVocabulary, TokenizerSpec
from noria.core.outputs import Delta
from noria.engine.facts import write_facts
from noria.engine.in_process import InProcessClient
from noria.engine.messages import EngineFacts
from noria.engine.orders import Order, send_order
from noria.engine.remote.client import RemoteClient
from noria.engine.remote.host import EngineHost
from noria.engine.remote.page import Page
from support_engine import engine_config, loop_factory
from support_ledger_runner import LedgerRunner

FACTS = EngineFacts(
    model_name="ledger",
    tokenizer=TokenizerSpec(
        vocabulary=GgufVocabulary("gpt2", ("a", "b"), merges=("a b",)), eos_token_ids=(1,)
    ),
    generation_defaults={"temperature": 0.5, "top_k": 3},
    max_model_len=256,
    vocab_size=50,
    cache_labels={"block_size": "4"},
    seed=3,
)


class HostedEngine:
    """An engine that is served on `page`, as its process would do it."""

    def __init__(self, page: Page, directory: str, runner: LedgerRunner, facts: EngineFacts = FACTS) -> None:
        self.page = page
        page.engine_starts()
        write_facts(facts, directory, page.engine().incarnation)
        page.engine_is_settled()
        config = engine_config()
        self.engine = InProcessClient(loop_factory(config, runner), config, page.put_stats, page.put_crowd)
        self.host = EngineHost(self.engine, page, directory)
        self._orders, self._order_writer = os.pipe()
        self._thread = threading.Thread(target=self.host.run, args=(self._orders,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """An orderly end."""
        send_order(self._order_writer, Order.QUIT)
        self._thread.join(timeout=60)
        assert not self._thread.is_alive()
        self.engine.shutdown()
        self.host.close()
        self.page.engine_ended()
        os.close(self._order_writer)
        os.close(self._orders)


class Inbox:
    """A sink on the event loop that can be waited on."""

    def __init__(self) -> None:
        self.deltas: list[Delta] = []
        self._changed = asyncio.Event()

    def __call__(self, deltas: Sequence[Delta]) -> None:
        self.deltas += deltas
        self._changed.set()

    async def ended(self, *request_ids: str) -> None:
        """All of them have had their last delta."""
        while not set(request_ids) <= {delta.request_id for delta in self.deltas if delta.finish is not None}:
            await asyncio.wait_for(self._changed.wait(), timeout=60)
            self._changed.clear()

    def output(self, request_id: str) -> list[int]:
        return [token for delta in self.deltas if delta.request_id == request_id for token in delta.token_ids]

    def last(self, request_id: str) -> Delta:
        return [delta for delta in self.deltas if delta.request_id == request_id][-1]


@asynccontextmanager
async def hosted(
    num_apis: int = 1, runner: LedgerRunner | None = None, num_spare: int = 0
) -> AsyncIterator[tuple[HostedEngine, list[RemoteClient], str]]:
    """An engine and its clients, which know it already. num_spare: further places on the page."""
    with tempfile.TemporaryDirectory() as directory:
        page = Page(num_apis + num_spare)
        engine = HostedEngine(page, directory, runner or LedgerRunner(4))
        clients = []
        for slot in range(num_apis):
            page.api_starts(slot)
            clients.append(RemoteClient(page, slot, directory))
        for client in clients:
            assert await asyncio.wait_for(client.facts(), timeout=60) == FACTS
            await asyncio.wait_for(client.linked(), timeout=60)
        try:
            yield engine, clients, directory
        finally:
            for client in clients:
                client.shutdown()
            engine.stop()


async def until(condition: object) -> None:
    """Wait for what another thread or the loop brings about."""
    assert callable(condition)
    for _ in range(6000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never came to that")
