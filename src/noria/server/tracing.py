"""What OpenTelemetry is told of each request that generates. Loaded only where that is asked for."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Protocol

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from noria.core.outputs import FinishReason
from noria.engine.client import EngineClient, Sink
from noria.engine.crowd import Crowd
from noria.engine.messages import EngineRequest, EngineStats, RequestRecord, StepRecord
from noria.engine.records import Recorder
from noria.server.middleware import HttpLayer

# path -> what the conventions call the operation
OPERATIONS: Mapping[str, str] = {
    "/v1/chat/completions": "chat",
    "/v1/responses": "chat",
    "/v1/messages": "chat",
    "/v1/completions": "text_completion",
    "/v1/embeddings": "embeddings",
}

_FAILURES = (FinishReason.ERROR, FinishReason.FAULT, FinishReason.LOST, FinishReason.TIMEOUT)
_FLUSH_S = 3.0  # all reports together
_RECORD_WAIT_S = 5.0  # a cancelled sequence's record follows the answer; that of a dead engine's never comes


@dataclass(slots=True)
class RequestTrace:
    """What is known of one HTTP request so far. Instants in nanoseconds since 1970."""

    operation: str
    model: str
    parent: Mapping[str, str]  # headers traceparent and tracestate, where they are sent
    began_ns: int
    first_chunk_ns: int | None = None
    ended_ns: int | None = None
    status: int = 0
    is_stream: bool = False
    sequences: list[EngineRequest] = field(default_factory=list)
    records: dict[str, RequestRecord] = field(default_factory=dict)
    is_lost: bool = False  # records that never came: the engine had died

    @property
    def is_whole(self) -> bool:
        return self.ended_ns is not None and len(self.records) == len(self.sequences)

    @property
    def error(self) -> str | None:
        """What the conventions call its type: the HTTP status, or how a sequence ended whose answer had begun."""
        if self.status >= 400:
            return str(self.status)
        ends = [one.finish for one in self.records.values()] + [FinishReason.LOST] * self.is_lost
        return next((finish.value for finish in ends if finish in _FAILURES), None)


class Report(Protocol):
    """One thing that is made of requests that have ended."""

    def tell(self, trace: RequestTrace) -> None:
        """On the event loop's thread; must be quick and must not raise."""
        ...

    def close(self) -> None:
        """Send what is left. May take as long as it likes: nobody waits for ever."""
        ...


_current: ContextVar[RequestTrace | None] = ContextVar("noria_request_trace", default=None)


class Tracing:
    """Gathers what the HTTP side and the engine's records say of a request, and gives it to the reports.

    A RecordListener on the engine's thread; all else runs on the event loop's.
    """

    def __init__(self, reports: Sequence[Report], model: str) -> None:
        self._reports = reports
        self._model = model
        self._loop: asyncio.AbstractEventLoop | None = None
        self._open: dict[str, RequestTrace] = {}  # by engine request id

    def watch(self, client: EngineClient) -> EngineClient:
        client.recorder.add_listener(self)
        return TracedClient(client, self)

    def install(self, app: Starlette) -> None:
        app.add_middleware(TracingMiddleware, tracing=self)

    def begin(self, operation: str, headers: Headers) -> RequestTrace:
        self._loop = asyncio.get_running_loop()
        parent = {name: headers[name] for name in ("traceparent", "tracestate") if name in headers}
        return RequestTrace(operation, self._model, parent, time.time_ns())

    def submitted(self, requests: Sequence[EngineRequest]) -> None:
        """These sequences belong to the request that is being handled."""
        trace = _current.get()
        if trace is None:
            return
        trace.sequences += requests
        for request in requests:
            self._open[request.request_id] = trace

    def end(self, trace: RequestTrace) -> None:
        """The answer is out, or the client is gone."""
        trace.ended_ns = time.time_ns()
        if trace.is_whole:
            self._emit(trace)
        else:
            asyncio.get_running_loop().call_later(_RECORD_WAIT_S, self._give_up, trace)

    def on_step(self, record: StepRecord) -> None:
        pass  # reports are about requests

    def on_request(self, record: RequestRecord) -> None:
        if record.request_id not in self._open or self._loop is None:
            return
        with contextlib.suppress(RuntimeError):  # the loop is closed: the server has gone
            self._loop.call_soon_threadsafe(self._take, record)

    def close(self) -> None:
        """Send what is left. Gives up on a collector that does not answer."""
        for trace in list({id(trace): trace for trace in self._open.values()}.values()):
            trace.ended_ns = trace.ended_ns or time.time_ns()
            self._emit(trace)
        flushing = [threading.Thread(target=report.close, daemon=True) for report in self._reports]
        for thread in flushing:
            thread.start()
        end_s = time.monotonic() + _FLUSH_S
        for thread in flushing:
            thread.join(max(0.0, end_s - time.monotonic()))

    def _take(self, record: RequestRecord) -> None:
        trace = self._open.get(record.request_id)
        if trace is None:
            return
        trace.records[record.request_id] = record
        if trace.is_whole:
            self._emit(trace)

    def _give_up(self, trace: RequestTrace) -> None:
        if any(request.request_id in self._open for request in trace.sequences):
            trace.is_lost = True
            self._emit(trace)

    def _emit(self, trace: RequestTrace) -> None:
        for request in trace.sequences:
            self._open.pop(request.request_id, None)
        for report in self._reports:
            report.tell(trace)


class TracedClient:
    """An EngineClient that tells the tracing what is submitted to the one behind it."""

    def __init__(self, client: EngineClient, tracing: Tracing) -> None:
        self._client = client
        self._tracing = tracing

    @property
    def recorder(self) -> Recorder:
        return self._client.recorder

    def submit(self, requests: Sequence[EngineRequest], sink: Sink) -> Future[None]:
        self._tracing.submitted(requests)
        return self._client.submit(requests, sink)

    def cancel(self, request_ids: Sequence[str], finish: FinishReason = FinishReason.ABORT) -> None:
        self._client.cancel(request_ids, finish)

    def stats(self) -> EngineStats:
        return self._client.stats()

    def crowd(self) -> Crowd | None:
        return self._client.crowd()

    def shutdown(self) -> None:
        self._client.shutdown()


class TracingMiddleware(HttpLayer):
    """Traces the routes that generate."""

    sees_probes = False

    def __init__(self, app: ASGIApp, tracing: Tracing) -> None:
        super().__init__(app)
        self._tracing = tracing

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        operation = OPERATIONS.get(scope["path"].removeprefix(scope.get("root_path", "")))
        if operation is None or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        trace = self._tracing.begin(operation, Headers(scope=scope))

        async def watched_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                trace.status = message["status"]
                content_type = Headers(raw=message["headers"]).get("content-type", "")
                trace.is_stream = content_type.startswith("text/event-stream")
            elif trace.first_chunk_ns is None:
                trace.first_chunk_ns = time.time_ns()
            await send(message)

        token = _current.set(trace)
        try:
            await self._app(scope, receive, watched_send)
        finally:
            _current.reset(token)
            self._tracing.end(trace)
