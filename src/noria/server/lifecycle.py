"""Running the server: sockets, signals, and an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import logging
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import uvicorn
import uvicorn.config
from starlette.applications import Starlette

from noria.config.logs import LINE_HEAD, LogOptions
from noria.config.serving import ServerOptions
from noria.engine.orders import Order
from noria.server.acceptor import Acceptor, AcceptorConfig
from noria.server.access_log import PathFilter
from noria.server.doorway import guarded_http_protocol
from noria.server.errors import unavailable
from noria.server.http_protocol import bounded_http_protocol
from noria.server.sockets import address_of, check_certificates

logger = logging.getLogger("noria.server")

_LEVELS = {"trace": "DEBUG"}  # a level that the web server adds to the usual ones
_ACCESS_LINE = 'uvicorn: %(client_addr)s - "%(request_line)s" %(status_code)s'
_WEB_SERVER_LOG = "uvicorn.error"
_CLOSING_S = 2  # for connections to close once nothing is running


class NoriaServer(uvicorn.Server):
    """A server that drains: told to, it refuses new work and lets running work end.

    What runs longer than `options.shutdown_timeout` is told so and ended.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        app: Starlette,
        options: ServerOptions,
        on_listening: Callable[[], None],
    ) -> None:
        """on_listening: called once clients can connect."""
        super().__init__(config)
        self._on_listening = on_listening
        self._switchboard = app.state.switchboard
        self._options = options
        self._acceptors: list[Acceptor] = []
        self._draining: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone: whoever runs the server takes them and gives orders."""
        yield

    def follow(self, max_model_len: int, cache_labels: Mapping[str, str]) -> None:
        """Another engine is in the place of the one before it, with these sizes."""
        self._switchboard.served.follow(max_model_len, cache_labels)

    def obey(self, order: Order) -> None:
        """On the event loop."""
        if order is Order.QUIT:
            self._cut()
        elif self._draining is None:
            logger.info("requests that get to finish: %d", self._switchboard.gate.num_inside)
            self._draining = asyncio.ensure_future(self._drain())

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup([])
        config = self._acceptor_config()
        for listener in sockets or ():
            acceptor = Acceptor(listener, config)
            acceptor.open()
            self._acceptors.append(acceptor)
            logger.info("listening on %s", address_of(listener, self._options.connections))
        self._on_listening()

    def _acceptor_config(self) -> AcceptorConfig:
        config, switchboard = self.config, self._switchboard

        def make_protocol(waited_since_s: float | None) -> asyncio.Protocol:
            made: Any = config.http_protocol_class
            protocol: Any = made(config, self.server_state, self.lifespan.state)
            protocol.waited_since_s = waited_since_s
            return cast(asyncio.Protocol, protocol)

        is_logged = logging.getLogger("uvicorn.access").hasHandlers()
        return AcceptorConfig(
            make_protocol, config.ssl, switchboard.doorway, switchboard.limits, self.server_state, is_logged
        )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for acceptor in self._acceptors:
            acceptor.close()
        await super().shutdown(sockets)
        if self._switchboard.doorway is not None:
            self._switchboard.doorway.lines.flush()

    async def _drain(self) -> None:
        switchboard = self._switchboard
        switchboard.gate.drain()
        if not await switchboard.gate.wait_until_idle(self._options.shutdown_timeout):
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


def make_server(
    app: Starlette, options: ServerOptions, on_listening: Callable[[], None] = lambda: None
) -> NoriaServer:
    """Raises ConfigError for certificates that cannot be served with."""
    connections = options.connections
    check_certificates(connections)
    limits, doorway = app.state.switchboard.limits, app.state.switchboard.doorway
    config = uvicorn.Config(
        app,
        loop="uvloop",
        http=bounded_http_protocol(limits) if doorway is None else guarded_http_protocol(limits, doorway),
        ws="none",
        lifespan="on",
        log_config=_log_config(options.uvicorn_log_level, options.logs),
        access_log=not options.logs.disable_uvicorn_access_log,
        log_level=options.uvicorn_log_level,
        server_header=False,
        timeout_keep_alive=limits.connection_keep_alive_s,
        timeout_graceful_shutdown=_CLOSING_S,
        ssl_certfile=connections.ssl_certfile,
        ssl_keyfile=connections.ssl_keyfile,
        ssl_keyfile_password=connections.ssl_keyfile_password,
        ssl_ca_certs=connections.ssl_ca_certs,
        ssl_cert_reqs=ssl.CERT_NONE if connections.ssl_ca_certs is None else ssl.CERT_REQUIRED,
    )
    if logging.getLogger(_WEB_SERVER_LOG).level == logging.INFO:
        # What it says of its start and its end, we say ourselves.
        logging.getLogger(_WEB_SERVER_LOG).setLevel(logging.WARNING)
    return NoriaServer(config, app, options, on_listening)


def _log_config(level: str, logs: LogOptions) -> dict[str, Any]:
    """The web server's own, with our line's head, and how much we say; where our lines go the program sets."""
    config: dict[str, Any] = copy.deepcopy(uvicorn.config.LOGGING_CONFIG)
    config["formatters"]["default"]["fmt"] = LINE_HEAD + "uvicorn: %(message)s"
    config["formatters"]["access"]["fmt"] = LINE_HEAD + _ACCESS_LINE
    config["loggers"]["noria"] = {"level": _LEVELS.get(level, level.upper())}
    if logs.disable_access_log_for_endpoints:
        config["filters"] = {"paths": {"()": PathFilter, "paths": logs.disable_access_log_for_endpoints}}
        config["handlers"]["access"]["filters"] = ["paths"]
    return config
