"""Puts the server together."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI
from prometheus_client.registry import Collector
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from noria import __version__
from noria.config.errors import EngineError, OverloadError, PluginError, RequestError
from noria.config.serving import ServerOptions
from noria.engine.client import EngineClient
from noria.engine.heartbeat import Heartbeat
from noria.server.admission import Admission, AdmissionMiddleware
from noria.server.bridge import Bridge
from noria.server.control_routes import AbortRequest, control_routes
from noria.server.dashboard.routes import dashboard_routes
from noria.server.doorway import Doorway, Sight
from noria.server.engine_metrics import LEGACY_NAMES, EngineMetrics
from noria.server.errors import ApiError, answer_error, answer_http_exception
from noria.server.exporting import Traces, traces_of
from noria.server.exposition import Exposition
from noria.server.fleet import Fleet
from noria.server.fleet_metrics import FleetMetrics
from noria.server.gate import Gate
from noria.server.generation_routes import BODIES as GENERATION_BODIES
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
from noria.server.openapi import openapi_with
from noria.server.pooling_routes import BODIES as POOLING_BODIES
from noria.server.pooling_routes import pooling_routes
from noria.server.process_metrics import ProcessMetrics
from noria.server.served import ServedModel
from noria.server.service import Service
from noria.server.system_routes import debug_routes, model_routes, probe_routes, with_heads
from noria.server.tokenization_routes import BODIES as TOKENIZATION_BODIES
from noria.server.tokenization_routes import tokenization_routes

_BODIES: list[type[BaseModel]] = [
    *GENERATION_BODIES,
    *POOLING_BODIES,
    *TOKENIZATION_BODIES,
    AbortRequest,
]


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
) -> FastAPI:
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
    totals: list[Collector] = [engine_metrics, http_metrics]
    background = [watch.run]
    refresh = None
    if fleet.ledger is not None:
        fleet_metrics = FleetMetrics(fleet.ledger, engine_metrics, http_metrics)
        totals = [fleet_metrics]
        background.append(fleet_metrics.follow)
        refresh = fleet_metrics.refresh
    service = Service(served, options, limits, bridge, watch, http_metrics, fleet.name)
    keys = KeyRing(options.api_key, options.api_keys_file, limits.keys_look_every_s)

    app = FastAPI(
        title="Noria",
        version=__version__,
        lifespan=_lifespan([*background, keys.follow], service, traces),
        redirect_slashes=False,
        openapi_url=None if options.connections.disable_fastapi_docs else "/openapi.json",
    )
    admission, sight = Admission(client.crowd, watch, options.request_timeout), _sight(options, limits)
    doorway = None if sight is None else Doorway(admission, keys, gate, http_metrics, sight)
    app.state.switchboard = Switchboard(gate, bridge, limits, served, doorway)
    exposition = Exposition(*totals, ProcessMetrics(fleet.pids, fleet.process), refresh=refresh)
    app.include_router(with_heads(probe_routes(watch, gate, exposition)))
    app.include_router(with_heads(model_routes(served)))
    app.include_router(with_heads(debug_routes(timeline)))
    app.include_router(generation_routes(service))
    app.include_router(pooling_routes(service))
    app.include_router(with_heads(tokenization_routes(service)))
    app.include_router(with_heads(control_routes(bridge, fleet.peers)))
    app.include_router(dashboard_routes(client, served, gate))
    _answer_errors(app)
    _report(app, options, client, admission, http_metrics)
    _wrap(app, options, keys, limits, gate, http_metrics)
    traces.install(app)
    app.openapi = openapi_with(app, _BODIES, served.names)  # type: ignore[method-assign]
    return app


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


def _answer_errors(app: FastAPI) -> None:
    for kind in (ApiError, RequestError, OverloadError, PluginError, EngineError, RecursionError):
        app.add_exception_handler(kind, answer_error)
    app.add_exception_handler(HTTPException, answer_http_exception)


def _report(
    app: FastAPI, options: ServerOptions, client: EngineClient, admission: Admission, metrics: HttpMetrics
) -> None:
    """What needs the engine's own numbers: refusing for it, and telling of its load."""
    if not options.logs.enable_log_requests:  # what is to be logged has to be read
        app.add_middleware(AdmissionMiddleware, admission=admission, metrics=metrics)
    app.add_middleware(LoadReportMiddleware, stats=client.stats)


def _sight(options: ServerOptions, limits: Limits) -> Sight | None:
    """None where every request is to be read, since it is logged, or traced."""
    if options.logs.enable_log_requests or options.observing.otlp_traces_endpoint is not None:
        return None
    connections = options.connections
    root_path = (connections.root_path or "").rstrip("/")
    return Sight(root_path, bool(connections.allowed_origins), limits.max_body_bytes)


def _wrap(
    app: FastAPI,
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
) -> Callable[[FastAPI], contextlib.AbstractAsyncContextManager[None]]:
    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        tasks = [asyncio.ensure_future(work()) for work in background]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            service.close()
            traces.close()

    return lifespan
