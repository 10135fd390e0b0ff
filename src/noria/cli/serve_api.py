"""A process of `noria serve` that speaks HTTP: text on one side, token ids to the engine on the other."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from dataclasses import replace
from random import Random
from typing import Any

import uvloop

from noria.cli.starting import no_collections, wait_for_processors
from noria.config.serving import ServeOptions, ServerOptions
from noria.engine.fingerprint import read_fingerprint
from noria.engine.messages import EngineFacts
from noria.engine.orders import Order, read_order
from noria.engine.remote.client import RemoteClient
from noria.engine.remote.page import ApiState, Page
from noria.engine.trace import chrome_trace
from noria.server.app import create_app
from noria.server.fleet import Fleet, NoPeers
from noria.server.ledger import Ledger
from noria.server.lifecycle import NoriaServer, make_server
from noria.server.served import ServedModel
from noria.tokenize.tokenizer import Tokenizer, build_tokenizer

log = logging.getLogger("noria.server")


class ApiProcess:
    """One of them. page, directory: those of the engine's host. slot: its number, from 0 on."""

    def __init__(self, options: ServeOptions, page: Page, slot: int, directory: str) -> None:
        self._options = options
        self._page = page
        self._slot = slot
        self._directory = directory

    def run(self, listener: socket.socket, orders: int) -> int:
        """Serve on a bound socket, shared with the others, until the descriptor `orders` says to end."""
        self._page.put_api_pid(self._slot, os.getpid())
        wait_for_processors()
        uvloop.run(self._serve(listener, orders))
        return 0

    async def _serve(self, listener: socket.socket, orders: int) -> None:
        ledger = self._ledger()
        client = RemoteClient(self._page, self._slot, self._directory)
        first = await client.facts()
        facts = _with_own_seed(first, self._name)
        with no_collections():
            tokenizer = build_tokenizer(facts.tokenizer)
            served = served_model(tokenizer, facts, self._options.server, self._page.started_s)
            served = replace(served, fingerprint=self._fingerprint)
            server = self._server(client, served, self._fleet(client, ledger))
        client.on_facts = lambda found: follow(found, first, server)
        if not tokenizer.has_chat_template and self._slot == 0:
            print("note: the model brings no chat template; chats need --chat-template FILE", file=sys.stderr)
        self._put_state(ApiState.PREPARED)
        await client.linked()
        asyncio.get_running_loop().add_reader(orders, lambda: server.obey(read_order(orders)))
        await server.serve(sockets=[listener])
        client.shutdown()

    def _server(self, client: RemoteClient, served: ServedModel, fleet: Fleet) -> NoriaServer:
        recorder, options = client.recorder, self._options.server
        timeline = lambda: chrome_trace(recorder.steps(), recorder.requests())  # noqa: E731
        app = create_app(client, served, options, timeline, fleet=fleet)
        return make_server(app, options, lambda: self._put_state(ApiState.SERVING))

    def _ledger(self) -> Ledger | None:
        num_apis = self._page.num_apis
        return Ledger(self._directory, self._slot, num_apis) if num_apis > 1 else None

    def _fleet(self, client: RemoteClient, ledger: Ledger | None) -> Fleet:
        peers = NoPeers() if ledger is None else client.peers
        return Fleet(self._name, peers, ledger, self._page.pids)

    def _fingerprint(self) -> dict[str, Any]:
        return read_fingerprint(self._directory, self._page.engine().incarnation)

    @property
    def _name(self) -> str:
        """Of this process: no API process before it had it."""
        incarnation = self._page.api_incarnation(self._slot)
        return str(self._slot) if incarnation == 1 else f"{self._slot}-{incarnation}"

    def _put_state(self, state: ApiState) -> None:
        self._page.put_api_state(self._slot, state)


def follow(found: EngineFacts, first: EngineFacts, server: NoriaServer) -> None:
    """An engine is there. Of one with other sizes than the first they are taken over; where its model is another, this
    process drains, and the one that is started in its place reads everything anew.
    """
    if replace(first, max_model_len=found.max_model_len, cache_labels=found.cache_labels) == found:
        server.follow(found.max_model_len, found.cache_labels)
        return
    log.warning(
        "the engine that is there now has another model, tokenizer or defaults; starting anew with them"
    )
    server.obey(Order.DRAIN)


def _with_own_seed(facts: EngineFacts, process: str) -> EngineFacts:
    """Processes that drew from one seed would all draw the same. The first draws as one alone would."""
    if facts.seed is None or process == "0":
        return facts
    return replace(facts, seed=Random(f"{facts.seed} {process}").getrandbits(64))


def served_model(
    tokenizer: Tokenizer, facts: EngineFacts, options: ServerOptions, created: int
) -> ServedModel:
    """What the server has to know of a model, and of the engine that runs it. created: in seconds since 1970."""
    return ServedModel(
        names=options.served_model_name or (facts.model_name,),
        tokenizer=tokenizer,
        max_model_len=facts.max_model_len,
        vocab_size=facts.vocab_size,
        max_logprobs=options.max_logprobs,
        created=created,
        generation_defaults=facts.generation_defaults,
        cache_labels=facts.cache_labels,
        seed=facts.seed,
        abilities=facts.abilities,
    )
