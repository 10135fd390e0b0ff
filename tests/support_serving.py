"""A real server on a real model, in this process, for tests over HTTP."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from noria.cli.serve_api import served_model
from noria.config.parse import from_mapping
from noria.config.serving import ServeOptions
from noria.engine.build import load_engine, start_engine
from noria.engine.facts import engine_facts
from noria.engine.in_process import InProcessClient
from noria.engine.opening import open_model
from noria.engine.trace import chrome_trace
from noria.server.app import create_app
from noria.server.lifecycle import make_server
from noria.tokenize.tokenizer import Tokenizer, build_tokenizer
from support_sockets import listen


@dataclass
class Serving:
    """A running server. url: without a path."""

    url: str
    engine: InProcessClient
    tokenizer: Tokenizer

    def check_clean(self) -> None:
        """Assert that nothing runs or waits, and that every block is accounted for."""
        deadline = time.monotonic() + 60
        while self._is_busy() and time.monotonic() < deadline:
            time.sleep(
                0.01
            )  # the last news of a request is out a moment before the engine has counted it out
        stats = self.engine.stats()
        assert (stats.num_running, stats.num_waiting, stats.num_blocks_used) == (0, 0, 0), stats
        self.engine._loop.scheduler.check()

    def _is_busy(self) -> bool:
        stats = self.engine.stats()
        return bool(stats.num_running or stats.num_waiting or stats.num_blocks_used)


@contextmanager
def serving(**settings: object) -> Iterator[Serving]:
    """Serve `settings["model"]` as "test", with settings as flags spell them, until the block ends."""
    # An engine that waits for its test is not hung.
    defaults = {"uvicorn_log_level": "warning", "served_model_name": "test", "engine_hang_timeout": 1000.0}
    options = from_mapping(ServeOptions, {**defaults, **settings})
    opened = open_model(options.engine.model)
    tokenizer = build_tokenizer(opened.tokenizer)
    engine = start_engine(load_engine(opened, options.engine, lambda resolved: None), options.queue)
    recorder = engine.client.recorder
    app = create_app(
        engine.client,
        served_model(tokenizer, engine_facts(opened, engine.resolved, options.engine), options.server, 0),
        options.server,
        lambda: chrome_trace(recorder.steps(), recorder.requests()),
    )
    server, listener = make_server(app, options.server), listen()
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        # The socket listens already: connections wait in its queue until the server takes them.
        yield Serving(f"http://127.0.0.1:{listener.getsockname()[1]}", engine.client, tokenizer)
    finally:
        server.should_exit = True
        thread.join(timeout=60)
        engine.client.shutdown()
