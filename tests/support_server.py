"""An engine whose answers a test writes, and the real server in front of it on a loopback port."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import lru_cache
from typing import Any

import httpx

from noria.config.errors import EngineError
from noria.config.parse import from_mapping
from noria.config.serving import ServerOptions
from noria.config.tokenizer import TokenizerSpec
from noria.core.outputs import Delta, FinishReason
from noria.core.plan import TokenLogprobs
from noria.engine.client import Sink, verdict_of
from noria.engine.crowd import Crowd
from noria.engine.messages import EngineStats, GenerateRequest
from noria.engine.records import Recorder
from noria.server.app import create_app
from noria.server.fleet import Fleet
from noria.server.lifecycle import NoriaServer, make_server
from noria.server.limits import Limits
from noria.server.served import ServedModel
from noria.tokenize.tokenizer import Tokenizer, build_tokenizer
from support_sockets import listen
from support_vocabularies import byte_level_reference, gguf_of_byte_level

CHAT_TEMPLATE = (
    "{% for m in messages %}<|start|>{{ m.role }}\n{{ m.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)
CHAT = {"model": "wheel", "messages": [{"role": "user", "content": "turn"}]}
TEXT = {"model": "wheel", "prompt": "The water"}
END_ID = 0
# An engine that waits for its test is not hung.
PATIENT = {"engine_hang_timeout": 1000.0}

# A request's deltas, first to last; the engine fills in the request id.
Script = Callable[[GenerateRequest], list[Delta]]


@lru_cache(maxsize=4)
def tokenizer(template: str = CHAT_TEMPLATE) -> Tokenizer:
    return build_tokenizer(
        TokenizerSpec(
            vocabulary=gguf_of_byte_level(byte_level_reference()),
            bos_token_id=1,
            eos_token_ids=(END_ID,),
            chat_templates=(("default", template),),
        )
    )


def logprobs_of(token_id: int, count: int) -> TokenLogprobs:
    """Made-up values that differ by token: the token itself is the second likeliest."""
    likeliest = (token_id + 1) % 256
    top = ((likeliest, -0.25), (token_id, -0.5 - token_id / 1000), ((token_id + 2) % 256, -9.0))
    return TokenLogprobs(token_id, -0.5 - token_id / 1000, 2, top[:count])


def says(
    text: str, *, ends: bool = True, cut: Callable[[list[int]], list[list[int]]] | None = None
) -> Script:
    """A script: the tokens of `text`, then the end token; max_tokens is obeyed.

    ends: without, the model would go on for ever, repeating the text. cut: how tokens share deltas.
    """

    def script(request: GenerateRequest) -> list[Delta]:
        ids = tokenizer().encode(text, add_special_tokens=False)
        ids = [*ids, END_ID] if ends else ids * (1 + (request.params.max_tokens or 0) // max(1, len(ids)))
        ids = ids[: request.params.max_tokens]
        pieces = cut(ids) if cut else [[i] for i in ids]
        deltas = [_delta(request, piece) for piece in pieces]
        return _with_end(request, deltas)

    return script


def _delta(request: GenerateRequest, ids: list[int]) -> Delta:
    count = request.params.logprobs
    logprobs = () if count is None else tuple(logprobs_of(i, count) for i in ids)
    return Delta(request.request_id, tuple(ids), logprobs)


def _with_end(request: GenerateRequest, deltas: list[Delta]) -> list[Delta]:
    deltas = deltas or [Delta(request.request_id)]
    count = request.params.prompt_logprobs
    if count is not None:
        scored = tuple(logprobs_of(i, count) for i in request.prompt_token_ids[1:])
        deltas[0] = replace(deltas[0], prompt_logprobs=scored)
    last = deltas[-1]
    stop_id = last.token_ids[-1] if last.token_ids else None
    stops = (END_ID, *request.params.stop_token_ids)
    if stop_id in stops and not request.params.ignore_eos:
        deltas[-1] = replace(last, finish=FinishReason.STOP, stop_token_id=stop_id)
    else:
        deltas[-1] = replace(last, finish=FinishReason.LENGTH)
    return deltas


class FakeEngine:
    """An EngineClient. Requests run as scripted, one delta of each a step.

    With `is_auto`, a thread steps as long as there is work; else the test calls `step`.
    """

    def __init__(self, script: Script | None = None, is_auto: bool = True) -> None:
        self.script = script or says("the wheel turns")
        self.recorder = Recorder()
        self.submitted: list[GenerateRequest] = []
        self.cancelled: list[str] = []
        self.cancel_reasons: list[FinishReason] = []  # of each of the cancelled
        self.submit_error: Exception | None = None
        self.is_alive = True
        self.beat_age_s = 0.0
        self.crowd_inside: Crowd | None = None
        self.sent: list[Delta] = []
        self._is_auto = is_auto
        self._is_shut_down = False
        self._running: dict[str, tuple[list[Delta], Sink]] = {}
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, daemon=True)
        if is_auto:
            self._thread.start()

    def submit(self, requests: Sequence[GenerateRequest], sink: Sink) -> Future[None]:
        return verdict_of(lambda: self._take(requests, sink))

    def _take(self, requests: Sequence[GenerateRequest], sink: Sink) -> None:
        if self.submit_error is not None:
            raise self.submit_error
        if not self.is_alive:
            raise EngineError("the engine is dead")
        with self._changed:
            for request in requests:
                assert request.request_id not in self._running
                self.submitted.append(request)
                self._running[request.request_id] = (list(self.script(request)), sink)
            self._changed.notify_all()

    def cancel(self, request_ids: Sequence[str], finish: FinishReason = FinishReason.ABORT) -> None:
        with self._changed:
            self.cancelled += request_ids
            self.cancel_reasons += [finish] * len(request_ids)
            for request_id in request_ids:
                if request_id in self._running:
                    self._running[request_id] = (
                        [Delta(request_id, finish=finish)],
                        self._running[request_id][1],
                    )
            self._changed.notify_all()

    def stats(self) -> EngineStats:
        num_running = len(self._running)
        return EngineStats(
            len(self.submitted),
            num_running,
            0,
            8,
            num_running,
            0,
            self.is_alive,
            beat_age_s=self.beat_age_s,
        )

    def crowd(self) -> Crowd | None:
        return self.crowd_inside

    def shutdown(self) -> None:
        with self._changed:
            self._is_shut_down = True
            self._changed.notify_all()
        if self._is_auto:
            self._thread.join(timeout=60)

    @property
    def is_busy(self) -> bool:
        return bool(self._running)

    def step(self) -> None:
        """Send the next delta of every running request, one call for each sink."""
        with self._changed:
            by_sink: dict[Sink, list[Delta]] = {}
            for request_id, (deltas, sink) in list(self._running.items()):
                delta = deltas.pop(0)
                if delta.finish is not None:
                    del self._running[request_id]
                by_sink.setdefault(sink, []).append(delta)
            self._changed.notify_all()
        for sink, batch in by_sink.items():
            self.sent += batch
            sink(batch)

    def wait_for(self, condition: Callable[[], object]) -> None:
        """Wait until something about this engine holds; fails after a minute."""
        with self._changed:
            assert self._changed.wait_for(condition, timeout=60), "it never came to that"

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._running or self._is_shut_down)
                if self._is_shut_down:
                    return
            self.step()


def served_model(**changes: Any) -> ServedModel:
    model = ServedModel(
        names=("wheel", "wheel-alias"),
        tokenizer=tokenizer(),
        max_model_len=64,
        vocab_size=500,
        max_logprobs=5,
        created=1700000000,
        cache_labels={"block_size": "16", "num_gpu_blocks": "8"},
        seed=1,
    )
    return replace(model, **changes)


def app_for(
    engine: Any,
    limits: Limits | None = None,
    model: ServedModel | None = None,
    fleet: Fleet | None = None,
    **options: Any,
) -> Any:
    """The ASGI app in front of `engine`."""
    timeline = lambda: {"traceEvents": []}  # noqa: E731
    settings = from_mapping(ServerOptions, {**PATIENT, **options})
    return create_app(engine, model or served_model(), settings, timeline, limits, fleet)


class Server:
    """A running server, and a client of it."""

    def __init__(self, app: Any, engine: Any, bound: socket.socket | None = None, **options: Any) -> None:
        self.app = app
        self.engine = engine
        self.server: NoriaServer = make_server(
            app, from_mapping(ServerOptions, {"uvicorn_log_level": "warning", **options})
        )
        self._socket = listen("127.0.0.1", 0) if bound is None else bound
        self._socket.listen()  # whoever connects before the server is there waits for it
        address = self._socket.getsockname()
        is_path = isinstance(address, str)
        self.port: int = 80 if is_path else address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        transport = httpx.HTTPTransport(uds=address) if is_path else None
        self.client = httpx.Client(base_url=self.url, timeout=60, transport=transport)
        self.thread = threading.Thread(
            target=self.server.run, kwargs={"sockets": [self._socket]}, daemon=True
        )
        self.thread.start()

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.client.get(path, **options)

    def chat(self, **changes: Any) -> httpx.Response:
        return self.client.post("/v1/chat/completions", json={**CHAT, **changes})

    def complete(self, **changes: Any) -> httpx.Response:
        return self.client.post("/v1/completions", json={**TEXT, **changes})

    def post(self, path: str, **fields: Any) -> httpx.Response:
        return self.client.post(path, json=fields)

    def stop(self) -> None:
        self.client.close()
        self.server.should_exit = True
        self.thread.join(timeout=60)
        assert not self.thread.is_alive()


@contextlib.contextmanager
def serving(
    engine: Any,
    limits: Limits | None = None,
    model: ServedModel | None = None,
    bound: socket.socket | None = None,
    **options: Any,
) -> Iterator[Server]:
    """bound: the socket to serve on, instead of a port of its own."""
    app = app_for(engine, limits, model, **options)
    with serving_app(app, engine, bound, **options) as server:
        yield server


@contextlib.contextmanager
def serving_app(
    app: Any, engine: Any, bound: socket.socket | None = None, **options: Any
) -> Iterator[Server]:
    server = Server(app, engine, bound, **options)
    try:
        yield server
    finally:
        server.stop()
        engine.shutdown()


def sse_data(response: httpx.Response) -> list[str]:
    """The data of each event of a stream."""
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    frames = response.text.split("\n\n")
    assert frames.pop() == ""
    return [frame.removeprefix("data: ") for frame in frames if not frame.startswith(":")]


def chunks(response: httpx.Response) -> list[dict[str, Any]]:
    """The JSON chunks of a whole stream, which ends with [DONE]."""
    *data, done = sse_data(response)
    assert done == "[DONE]"
    return [json.loads(item) for item in data]


class AsgiCall:
    """A request made straight to an app, on the running loop: every message it sends can be looked at.

    The client stays connected until `leave`.
    """

    def __init__(
        self, app: Any, path: str, body: Any, headers: dict[str, str] | None = None, method: str = "POST"
    ) -> None:
        self.messages: list[dict[str, Any]] = []
        self._gone = asyncio.Event()
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self._requests = [{"type": "http.request", "body": content, "more_body": False}]
        all_headers = {"content-type": "application/json", **(headers or {})}
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "scheme": "http",
            "headers": [(name.encode(), value.encode()) for name, value in all_headers.items()],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 2),
        }
        self.task = asyncio.ensure_future(app(scope, self._receive, self._send))

    @property
    def status(self) -> int:
        return self.messages[0]["status"]

    @property
    def bodies(self) -> list[bytes]:
        return [message["body"] for message in self.messages[1:]]

    def leave(self) -> None:
        self._gone.set()

    async def until(self, condition: Callable[[], object]) -> None:
        """Let the loop turn until the condition holds; fails where that takes a minute."""

        async def turn() -> None:
            while not condition():
                await asyncio.sleep(0)

        await asyncio.wait_for(turn(), 60)

    async def finished(self) -> None:
        await asyncio.wait_for(self.task, 60)

    async def _receive(self) -> dict[str, Any]:
        if self._requests:
            return self._requests.pop(0)
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, Any]) -> None:
        self.messages.append(message)
