"""Puts the server together."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from noria.config.errors import EngineError, OverloadError, PluginError, RequestError
from noria.config.serving import ServerOptions
from noria.engine.client import EngineClient
from noria.engine.heartbeat import Heartbeat
from noria.server.admission import Admission, AdmissionMiddleware
from noria.server.bridge import Bridge
from noria.server.control_routes import control_routes
from noria.server.dashboard.routes import dashboard_routes
from noria.server.doorway import Doorway, Sight
from noria.server.engine_metrics import LEGACY_NAMES, EngineMetrics
from noria.server.errors import ApiError, answer_error, answer_http_exception
from noria.server.exporting import Traces, traces_of
from noria.server.exposition import Exposition
from noria.server.fleet import Fleet
from noria.server.fleet_metrics import FleetMetrics
from noria.server.gate import Gate
from noria.server.generation_routes import generation_routes
from noria.server.health import Watch
from noria.server.http_metrics import HttpMetrics
from noria.server.keys import KeyRing
from noria.server.limits import Limits
from noria.server.load_report import LoadReportMiddleware
from noria.server.middleware import (
    ApiKeyMiddleware,
    BodyLimitMiddleware,
    ErrorBoundary,
    GateMiddleware,
    HttpMetricsMiddleware,
    RequestIdMiddleware,
    RootPathMiddleware,
)
from noria.server.openapi import page_routes
from noria.server.operations import routes_of
from noria.server.pooling_routes import pooling_routes
from noria.server.process_metrics import ProcessMetrics
from noria.server.served import ServedModel
from noria.server.service import Service
from noria.server.system_routes import debug_routes, model_routes, ping_route, probe_routes
from noria.server.tokenization_routes import tokenization_routes


@dataclass(frozen=True)
class Switchboard:
    """What runs the server has to hold: see lifecycle. Found as `app.state.switchboard`."""

    gate: Gate
    bridge: Bridge
    limits: Limits
    served: ServedModel
    doorway: Doorway | None  # none where every request is to be read, or traced


def create_app(
    client: EngineClient,
    served: ServedModel,
    options: ServerOptions,
    timeline: Callable[[], dict[str, Any]],
    limits: Limits | None = None,
    fleet: Fleet | None = None,
) -> Starlette:
    """The ASGI application that serves one engine.

    fleet: the API processes that this one belongs to; by itself it is one alone.
    timeline: makes a Chrome trace of the engine's recent steps and requests.
    Raises ConfigError for a bad file of API keys, and formats of tool calls or reasoning that nobody knows.
    """
    limits = limits or Limits.of(options.limits)
    fleet = fleet or Fleet()
    served = served.with_defaults(options.answers.override_generation_config or {})
    served = served.with_formats(options.tools)
    traces = traces_of(options.observing, served.name)
    bridge = Bridge(traces.watch(client))
    gate = Gate()
    watch = Watch(Heartbeat(client.stats, time.monotonic), bridge, options.processes.engine_hang_timeout)
    http_metrics = HttpMetrics(served.name)
    engine_metrics = _engine_metrics(client, served, options)
    exposition, background = _exposed(fleet, engine_metrics, http_metrics)
    service = Service(served, options, limits, bridge, watch, http_metrics, fleet.name)
    keys = KeyRing(options.api_key, options.api_keys_file, limits.keys_look_every_s)

    operations = [
        *probe_routes(watch, gate, exposition),
        *model_routes(served),
        *debug_routes(timeline),
        *generation_routes(service),
        *pooling_routes(service),
        *tokenization_routes(service),
        *control_routes(bridge, fleet.peers),
    ]
    app = Starlette(
        routes=[
            *routes_of(operations),
            ping_route(watch),
            *([] if options.connections.disable_fastapi_docs else page_routes(operations, served.names)),
            *dashboard_routes(client, served, gate),
        ],
        lifespan=_lifespan([watch.run, *background, keys.follow], service, traces),
    )
    app.router.redirect_slashes = False
    admission, sight = Admission(client.crowd, watch, options.request_timeout), _sight(options, limits)
    doorway = None if sight is None else Doorway(admission, keys, gate, http_metrics, sight)
    app.state.switchboard = Switchboard(gate, bridge, limits, served, doorway)
    _answer_errors(app)
    _report(app, options, client, admission, http_metrics)
    _wrap(app, options, keys, limits, gate, http_metrics)
    traces.install(app)
    return app


def _exposed(
    fleet: Fleet, engine_metrics: EngineMetrics, http_metrics: HttpMetrics
) -> tuple[Exposition, list[Callable[[], Coroutine[Any, Any, None]]]]:
    """What is shown of this process or of all of them, and what has to run for it."""
    own = ProcessMetrics(fleet.pids, fleet.process)
    if fleet.ledger is None:
        return Exposition(engine_metrics, http_metrics, own), []
    together = FleetMetrics(fleet.ledger, engine_metrics, http_metrics)
    return Exposition(together, own, refresh=together.refresh), [together.follow]


def _engine_metrics(client: EngineClient, served: ServedModel, options: ServerOptions) -> EngineMetrics:
    metrics = EngineMetrics(
        served.name,
        served.max_model_len,
        client.stats,
        lambda: served.cache_labels,
        LEGACY_NAMES if options.observing.legacy_metrics else {},
    )
    client.recorder.add_listener(metrics)
    return metrics


def _answer_errors(app: Starlette) -> None:
    for kind in (ApiError, RequestError, OverloadError, PluginError, EngineError, RecursionError):
        app.add_exception_handler(kind, answer_error)
    app.add_exception_handler(HTTPException, answer_http_exception)


def _report(
    app: Starlette, options: ServerOptions, client: EngineClient, admission: Admission, metrics: HttpMetrics
) -> None:
    """What needs the engine's own numbers: refusing for it, and telling of its load."""
    if not options.logs.enable_log_requests:  # what is to be logged has to be read
        app.add_middleware(AdmissionMiddleware, admission=admission, metrics=metrics)
    app.add_middleware(LoadReportMiddleware, stats=client.stats)


def _sight(options: ServerOptions, limits: Limits) -> Sight | None:
    """None where every request is to be read, since it is logged, or traced."""
    if options.logs.enable_log_requests or options.observing.is_traced:
        return None
    connections = options.connections
    root_path = (connections.root_path or "").rstrip("/")
    return Sight(root_path, bool(connections.allowed_origins), limits.max_body_bytes)


def _wrap(
    app: Starlette,
    options: ServerOptions,
    keys: KeyRing,
    limits: Limits,
    gate: Gate,
    http_metrics: HttpMetrics,
) -> None:
    # The last one added is the outermost.
    app.add_middleware(GateMiddleware, gate=gate, http_metrics=http_metrics)
    app.add_middleware(BodyLimitMiddleware, max_body_bytes=limits.max_body_bytes)
    if not keys.is_empty:
        app.add_middleware(ApiKeyMiddleware, keys=keys)
    app.add_middleware(ErrorBoundary)
    app.add_middleware(HttpMetricsMiddleware, metrics=http_metrics)
    app.add_middleware(RequestIdMiddleware)
    connections = options.connections
    if connections.root_path is not None:
        app.add_middleware(RootPathMiddleware, root_path=connections.root_path.rstrip("/"))
    if connections.allowed_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=connections.allowed_origins,
            allow_methods=connections.allowed_methods,
            allow_headers=connections.allowed_headers,
            allow_credentials=connections.allow_credentials,
            expose_headers=["x-request-id", "retry-after"],
        )


def _lifespan(
    background: Sequence[Callable[[], Coroutine[Any, Any, None]]], service: Service, traces: Traces
) -> Callable[[Starlette], contextlib.AbstractAsyncContextManager[None]]:
    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        tasks = [asyncio.ensure_future(work()) for work in background]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            service.close()
            traces.close()

    return lifespan
