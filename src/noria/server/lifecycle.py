"""Running the server: sockets, signals, and an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import logging
import signal
import socket
import ssl
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

import uvicorn
import uvicorn.config
from fastapi import FastAPI

from noria.config.logs import LogOptions
from noria.config.serving import ServerOptions
from noria.server.access_log import PathFilter
from noria.server.errors import unavailable
from noria.server.http_protocol import bounded_http_protocol
from noria.server.sockets import BACKLOG, address_of, bind, check_certificates, release

logger = logging.getLogger("noria.server")

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_LEVELS = {"trace": "DEBUG"}  # a level that the web server adds to the usual ones
_CLOSING_S = 2  # for connections to close once nothing is running


class NoriaServer(uvicorn.Server):
    """A server that drains: after the first signal it refuses new work and lets running work end.

    What runs longer than `shutdown_timeout_s` is told so and ended. A second signal ends everything at once.
    `exit_code`: 0 after a drain; 128 + signal number after a second signal.
    """

    def __init__(self, config: uvicorn.Config, app: FastAPI, shutdown_timeout_s: float) -> None:
        super().__init__(config)
        self.exit_code = 0
        self._switchboard = app.state.switchboard
        self._shutdown_timeout_s = shutdown_timeout_s
        self._draining: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take the signals while the server runs. (The base class raises them again when it has ended, which
        would turn an orderly end into a death by signal.)
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        before = {number: signal.getsignal(number) for number in _SIGNALS}
        for number in _SIGNALS:
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number, handler in before.items():
                loop.remove_signal_handler(number)
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """On the event loop: the first call drains, the second ends at once."""
        if self._draining is None:
            logger.info("signal %d: finishing %d requests", sig, self._switchboard.gate.num_inside)
            self._draining = asyncio.ensure_future(self._drain())
        else:
            logger.warning("signal %d again: ending at once", sig)
            self.exit_code = 128 + sig
            self._cut()

    async def _drain(self) -> None:
        switchboard = self._switchboard
        switchboard.gate.drain()
        if not await switchboard.gate.wait_until_idle(self._shutdown_timeout_s):
            logger.warning("%d requests are still running; ending them", switchboard.gate.num_inside)
            switchboard.bridge.fail_all(
                unavailable("The server is shutting down and could not wait for this request.", 5)
            )
            await switchboard.gate.wait_until_idle(switchboard.limits.drain_grace_s)
        if switchboard.gate.num_inside:
            self._cut()
        self.should_exit = True

    def _cut(self) -> None:
        self.should_exit = True
        for connection in list(self.server_state.connections):
            if connection.transport is not None:
                connection.transport.abort()


def run(app: FastAPI, options: ServerOptions) -> int:
    """Serve `app` (of create_app) until a signal ends it; returns the exit code. Raises ConfigError when the
    address cannot be listened on.
    """
    bound = bind(options)
    try:
        return serve(app, options, [bound])
    finally:
        release(bound, options)


def serve(app: FastAPI, options: ServerOptions, sockets: list[socket.socket]) -> int:
    """As `run`, on sockets that are bound already."""
    server = make_server(app, options)
    for listener in sockets:
        logger.info("listening on %s", address_of(listener, options.connections))
    server.run(sockets=sockets)
    return server.exit_code


def make_server(app: FastAPI, options: ServerOptions) -> NoriaServer:
    """Raises ConfigError for certificates that cannot be served with."""
    connections = options.connections
    check_certificates(connections)
    limits = app.state.switchboard.limits
    config = uvicorn.Config(
        app,
        loop="uvloop",
        http=bounded_http_protocol(limits),
        ws="none",
        lifespan="on",
        log_config=_log_config(options.uvicorn_log_level, options.logs),
        access_log=not options.logs.disable_uvicorn_access_log,
        log_level=options.uvicorn_log_level,
        server_header=False,
        timeout_keep_alive=limits.connection_keep_alive_s,
        timeout_graceful_shutdown=_CLOSING_S,
        backlog=BACKLOG,
        ssl_certfile=connections.ssl_certfile,
        ssl_keyfile=connections.ssl_keyfile,
        ssl_keyfile_password=connections.ssl_keyfile_password,
        ssl_ca_certs=connections.ssl_ca_certs,
        ssl_cert_reqs=ssl.CERT_NONE if connections.ssl_ca_certs is None else ssl.CERT_REQUIRED,
    )
    return NoriaServer(config, app, options.shutdown_timeout)


def _log_config(level: str, logs: LogOptions) -> dict[str, Any]:
    """The web server's own, and how much we say; where our lines go is for the program to set."""
    config: dict[str, Any] = copy.deepcopy(uvicorn.config.LOGGING_CONFIG)
    config["loggers"]["noria"] = {"level": _LEVELS.get(level, level.upper())}
    if logs.disable_access_log_for_endpoints:
        config["filters"] = {"paths": {"()": PathFilter, "paths": logs.disable_access_log_for_endpoints}}
        config["handlers"]["access"]["filters"] = ["paths"]
    return config
