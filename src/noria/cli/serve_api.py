"""A process of `noria serve` that speaks HTTP: text on one side, token ids to the engine on the other."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
import time

import uvloop

from noria.cli.starting import no_collections
from noria.config.serving import ServeOptions, ServerOptions
from noria.engine.messages import EngineFacts
from noria.engine.opening import OpenedModel, open_model
from noria.engine.orders import read_order
from noria.engine.remote.client import RemoteClient
from noria.engine.remote.page import ApiState, Page
from noria.engine.trace import chrome_trace
from noria.server.app import create_app
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
        with no_collections():
            opened = open_model(self._options.engine.model)
            opened.checkpoint.close()
            tokenizer = build_tokenizer(opened.tokenizer)
        if not tokenizer.has_chat_template and self._slot == 0:
            print("note: the model brings no chat template; chats need --chat-template FILE", file=sys.stderr)
        uvloop.run(self._serve(opened, tokenizer, listener, orders))
        return 0

    async def _serve(
        self, opened: OpenedModel, tokenizer: Tokenizer, listener: socket.socket, orders: int
    ) -> None:
        client = RemoteClient(self._page, self._slot, self._directory)
        facts = await client.facts()
        with no_collections():
            server = self._server(client, served_model(opened, tokenizer, facts, self._options.server))
        self._put_state(ApiState.PREPARED)
        await client.linked()
        asyncio.get_running_loop().add_reader(orders, lambda: server.obey(read_order(orders)))
        await server.serve(sockets=[listener])
        client.shutdown()

    def _server(self, client: RemoteClient, served: ServedModel) -> NoriaServer:
        recorder, options = client.recorder, self._options.server
        timeline = lambda: chrome_trace(recorder.steps(), recorder.requests())  # noqa: E731
        app = create_app(client, served, options, timeline)
        return make_server(app, options, lambda: self._put_state(ApiState.SERVING))

    def _put_state(self, state: ApiState) -> None:
        self._page.put_api_state(self._slot, state)


def served_model(
    opened: OpenedModel, tokenizer: Tokenizer, facts: EngineFacts, options: ServerOptions
) -> ServedModel:
    """What the server has to know of a model, and of the engine that runs it."""
    return ServedModel(
        names=options.served_model_name or (opened.name,),
        tokenizer=tokenizer,
        max_model_len=facts.max_model_len,
        vocab_size=facts.vocab_size,
        max_logprobs=options.max_logprobs,
        created=int(time.time()),
        generation_defaults=opened.generation_defaults,
        cache_labels=facts.cache_labels,
        seed=facts.seed,
    )
