"""What the engine would refuse is refused before it is read, and nobody can tell the difference."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noria.config.abilities import ScoreMethod
from noria.config.engine import QueueConfig
from noria.config.errors import OverloadError, Refusal
from noria.engine.pace import Pace
from noria.server.limits import Limits
from noria.server.protocol.asked import SPELLINGS, Asked, asked_of
from support_intake import FULL, crowd
from support_pooling import ALL, reading
from support_server import FakeEngine, Server, serving

BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "turn"}]},
    "/v1/completions": {"prompt": "turn"},
    "/v1/responses": {"input": "turn"},
    "/v1/messages": {"messages": [{"role": "user", "content": "turn"}], "max_tokens": 9},
}
READ_ONLY: dict[str, dict[str, Any]] = {
    "/v1/embeddings": {"input": "turn"},
    "/pooling": {"input": "turn"},
    "/classify": {"input": "turn"},
    "/score": {"text_1": "turn", "text_2": "wheel"},
    "/v1/score": {"text_1": "turn", "text_2": "wheel"},
    "/rerank": {"query": "turn", "documents": ["wheel"]},
    "/v1/rerank": {"query": "turn", "documents": ["wheel"]},
    "/v2/rerank": {"query": "turn", "documents": ["wheel"]},
}
# Steps take so long that no time of a test's own matters beside them: 12 sequences of 20 tokens, 5 too many for one
# that comes, each with 20 * 3.6 / 8 s of steps, and 1.6 s to read: 46.6 s.
BUSY = crowd(
    4, 40, 12, 240.0, QueueConfig(64, 10_000), Pace(0.4, 0.04, 0.4), mean_prompt=10.0, share_whole=1.0
)
REFUSED = "3 requests wait for their first token; this server queues 3."


@pytest.fixture
def full(server: Server) -> Iterator[Server]:
    """The server's engine has a full queue."""
    server.engine.crowd_inside = FULL
    yield server
    server.engine.crowd_inside = None


@pytest.fixture
def busy(server: Server) -> Iterator[Server]:
    """A request that comes now would wait for 46.6 s, and each token of its answer take 3.76 s."""
    server.engine.crowd_inside = BUSY
    yield server
    server.engine.crowd_inside = None


def counts(server: Server) -> dict[str, float]:
    """Of requests and refusals, by series."""
    lines = server.get("/metrics").text.splitlines()
    wanted = ("http_requests_total", "vllm:admission_rejections_total")
    return {
        line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if line.startswith(wanted)
    }


def added(server: Server, before: dict[str, float]) -> dict[str, float]:
    after = counts(server)
    return {
        name: value - before.get(name, 0) for name, value in after.items() if value != before.get(name, 0)
    }


def test_every_route_that_asks_the_engine_is_known(server: Server) -> None:
    paths = server.get("/openapi.json").json()["paths"]
    tags = {path: set(*(route["tags"] for route in routes.values())) for path, routes in paths.items()}
    asked = {path for path in paths if tags[path] & {"generation", "pooling"}}
    asked.remove("/v1/messages/count_tokens")  # which needs the tokenizer alone
    assert asked == SPELLINGS.keys() == BODIES.keys() | READ_ONLY.keys()


@pytest.fixture(scope="module")
def able() -> Iterator[Server]:
    """A server whose model can do all that is asked of any."""
    with reading(replace(ALL, score_method=ScoreMethod.SIMILARITY)) as server:
        yield server


LOAD = {"endpoint-load-metrics-format": "JSON"}  # not for the doorway: the answer tells more


@pytest.mark.parametrize("path", SPELLINGS)
@pytest.mark.parametrize("others", [{}, LOAD], ids=["doorway", "app"])
def test_a_refusal_is_the_same_whether_the_engine_gave_it_or_was_not_asked(
    able: Server, path: str, others: dict[str, str]
) -> None:
    server, body = able, {"model": "wheel", **(BODIES | READ_ONLY)[path]}
    answers, counted = [], []
    for is_early in (True, False):
        server.engine.crowd_inside = FULL if is_early else None
        server.engine.submit_error = None if is_early else OverloadError(REFUSED, Refusal.QUEUED_REQUESTS, 1)
        before = counts(server)
        answer = server.client.post(path, json=body, headers={"X-Request-Id": "mine", **others})
        told = {name: value for name, value in answer.headers.items() if name != "date"}
        answers.append((answer.status_code, answer.json(), told))
        counted.append(added(server, before))
    server.engine.crowd_inside = server.engine.submit_error = None
    assert answers[0] == answers[1]
    assert (answers[0][0], answers[0][2]["retry-after"], answers[0][2]["x-request-id"]) == (503, "1", "mine")
    assert (
        counted[0]
        == counted[1]
        == {
            f'http_requests_total{{handler="{path}",method="POST",status="5xx"}}': 1,
            'vllm:admission_rejections_total{model_name="wheel",reason="queued_requests"}': 1,
        }
    )


def test_what_is_refused_is_neither_parsed_nor_submitted(full: Server) -> None:
    answer = full.client.post("/v1/completions", content=b"{ no JSON", headers={"Content-Type": "text/plain"})
    assert (answer.status_code, answer.json()["error"]["message"]) == (503, REFUSED)
    assert full.engine.submitted == []


def test_where_nothing_is_ahead_everything_is_as_ever(server: Server) -> None:
    server.engine.crowd_inside = replace(FULL, num_queued=0, num_queued_tokens=0, num_live=0)
    assert server.complete(request_timeout=60).status_code == 200
    server.engine.crowd_inside = None


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/completions", 405),
        ("GET", "/v1/models", 200),
        ("GET", "/health", 200),
        ("POST", "/v1/messages/count_tokens", 200),
        ("POST", "/tokenize", 200),
    ],
)
def test_what_generates_nothing_is_never_refused(full: Server, method: str, path: str, status: int) -> None:
    body = {"model": "wheel", "prompt": "turn", "messages": [{"role": "user", "content": "turn"}]}
    if path == "/tokenize":
        del body["messages"]
    answer = full.client.request(method, path, json=body if method == "POST" else None)
    assert answer.status_code == status, answer.text


def test_a_key_and_an_open_gate_are_wanted_first() -> None:
    with serving(FakeEngine(), api_key=["sk-wheel"]) as server:
        server.engine.crowd_inside = FULL
        assert server.complete().status_code == 401
        known = {"Authorization": "Bearer sk-wheel"}
        answer = server.client.post("/v1/completions", json={"prompt": "turn"}, headers=known)
        assert (answer.status_code, answer.json()["error"]["message"]) == (503, REFUSED)
        server.app.state.switchboard.gate.drain()
        answer = server.client.post("/v1/completions", json={"prompt": "turn"}, headers=known)
        assert "shutting down" in answer.json()["error"]["message"]


def test_an_engine_that_takes_nothing_is_not_spoken_for() -> None:
    with serving(FakeEngine()) as server:
        server.engine.crowd_inside = FULL
        server.engine.is_alive = False
        answer = server.complete()
        assert answer.json()["error"]["message"] == "The engine is not able to take requests now."


def test_requests_that_are_to_be_logged_are_read_and_asked_about() -> None:
    with serving(FakeEngine(), enable_log_requests=True) as server:
        server.engine.crowd_inside = FULL
        assert server.complete().status_code == 200
        assert len(server.engine.submitted) == 1


# Deadlines


def test_a_time_in_the_headers_that_the_wait_alone_takes_is_refused_unread(busy: Server) -> None:
    headers = {"X-Request-Timeout": "60"}
    answer = busy.client.post("/v1/completions", content=b"{", headers=headers)
    assert answer.status_code == 503
    assert "about 46.6 s would pass before its turn came." in answer.json()["error"]["message"]
    headers = {"X-Request-Timeout": "100"}
    assert busy.client.post("/v1/completions", content=b"{", headers=headers).status_code == 400


@pytest.mark.parametrize("path", BODIES)
def test_an_answer_of_a_length_that_the_wait_makes_late_is_refused_before_its_prompt_is_read(
    busy: Server, path: str
) -> None:
    field = SPELLINGS[path].max_tokens[0]
    body = {"model": "wheel", **BODIES[path], field: 20}
    answer = busy.client.post(path, json=body, headers={"X-Request-Timeout": "140"})
    assert answer.status_code == 503, answer.text
    assert "75.2 s until its answer was whole" in answer.json()["error"]["message"]
    answer = busy.client.post(path, json={**body, "request_timeout": 140})
    assert answer.status_code == 503, answer.text
    assert busy.engine.submitted == []
    assert busy.client.post(path, json=body).status_code == 200
    assert busy.client.post(path, json={**body, field: 2, "request_timeout": 140}).status_code == 200
    assert len(busy.engine.submitted) == 2


@pytest.mark.parametrize("path", READ_ONLY)
def test_texts_to_be_read_are_refused_where_the_wait_alone_takes_their_time(able: Server, path: str) -> None:
    able.engine.crowd_inside = BUSY
    able.engine.submitted.clear()
    answer = able.client.post(path, json={**READ_ONLY[path], "request_timeout": 60})
    assert answer.status_code == 503, answer.text
    assert "about 46.6 s would pass before its turn came." in answer.json()["error"]["message"]
    assert able.engine.submitted == []
    answer = able.client.post(path, json={**READ_ONLY[path], "request_timeout": 100})
    assert answer.status_code == 200, answer.text
    able.engine.crowd_inside = None


def test_the_servers_own_time_counts_where_none_is_stated() -> None:
    with serving(FakeEngine(), request_timeout=140) as server:
        server.engine.crowd_inside = BUSY
        assert server.complete(max_tokens=20).status_code == 503
        assert server.complete(max_tokens=20, request_timeout=1000).status_code == 200


@pytest.mark.parametrize("changes", [{}, {"max_tokens": None}, {"prompt": "turn " * 20_000}])
def test_what_cannot_be_told_early_is_left_to_the_engine(busy: Server, changes: dict[str, Any]) -> None:
    if "prompt" in changes:
        changes = {**changes, "max_tokens": 20, "truncate_prompt_tokens": 8}
    assert busy.complete(request_timeout=140, **changes).status_code == 200
    assert len(busy.engine.submitted) == 1


@pytest.mark.parametrize("stated", ["soon", "-1"])
def test_a_time_that_is_none_is_refused_as_ever(full: Server, stated: str) -> None:
    answer = full.client.post("/v1/completions", json={"prompt": "x"}, headers={"X-Request-Timeout": stated})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "x-request-timeout")


_FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "n": st.none() | st.sampled_from([1, 2, 3.0]),
        "max_tokens": st.none() | st.integers(0, 40) | st.just(3.0),
        "max_completion_tokens": st.none() | st.integers(1, 40),
        "max_output_tokens": st.none() | st.integers(1, 40),
        "ignore_eos": st.none() | st.booleans(),
        "request_timeout": st.none() | st.floats(100, 1000) | st.integers(100, 1000),
        "prompt": st.sampled_from(["turn", ["turn"], ["turn", "round"], [5, 6], [[5, 6], [7]]]),
    },
)


@given(st.sampled_from(sorted(BODIES)), _FIELDS)
@settings(max_examples=80, deadline=None)
def test_what_is_told_of_a_body_early_is_what_is_made_of_it(
    _module_server: Server, path: str, fields: dict[str, Any]
) -> None:
    engine = _module_server.engine
    if path != "/v1/completions":
        fields = {name: value for name, value in fields.items() if name != "prompt"}
    body = {"model": "wheel", **BODIES[path], **fields}
    engine.submitted.clear()
    answer = _module_server.client.post(path, json=body)
    asked = asked_of(json.dumps(body).encode(), SPELLINGS[path])
    if answer.status_code != 200:
        return  # it names its fault, and is nobody's to refuse for another
    assert asked is not None
    params = engine.submitted[0].params
    assert len(engine.submitted) == asked.num_sequences
    assert params.ignore_eos == asked.ignores_eos
    assert asked.max_tokens in (None, params.max_tokens)
    timeout_s = engine.submitted[0].timeout_s
    assert (timeout_s is None) == (asked.timeout_s is None)
    assert timeout_s is None or asked.timeout_s - 60 < timeout_s < asked.timeout_s


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{", b'{"n": true}', b'{"n": -1}', b'{"max_tokens": "9"}', b'{"request_timeout": 0}'],
)
def test_nothing_is_told_of_a_body_that_is_at_fault(body: bytes) -> None:
    assert asked_of(body, SPELLINGS["/v1/completions"]) is None


def test_a_body_that_states_nothing_may_be_anything() -> None:
    assert asked_of(b"{}", SPELLINGS["/v1/messages"]) == Asked(1, None, False, None)


# Connections


def exchange(server: Server, *parts: bytes) -> bytes:
    """What comes back for all that is sent, until the server closes the connection."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        for part in parts:
            connection.sendall(part)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
        return answer


def post(body: bytes, *headers: str, length: bool = True) -> bytes:
    lines = ["POST /v1/completions HTTP/1.1", "Host: x", "Content-Type: application/json", *headers]
    lines += [f"Content-Length: {len(body)}"] if length else []
    return "\r\n".join((*lines, "", "")).encode() + body


LAST = b"GET /version HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


def test_requests_behind_a_refused_one_on_the_same_connection_are_answered_in_order(full: Server) -> None:
    answer = exchange(full, post(b'{"prompt": "turn"}') * 3 + LAST)
    assert answer.count(b"HTTP/1.1 503 ") == 3
    assert answer.count(REFUSED.encode()) == 3
    assert answer.rindex(b"HTTP/1.1 200 OK") > answer.rindex(b"503")
    assert b"connection: close" not in answer[: answer.rindex(b"HTTP/1.1 200")]


@pytest.mark.parametrize("size", [10, 100_000, 5_000_000])
def test_a_large_body_is_taken_in_before_it_is_refused_and_the_connection_goes_on(
    full: Server, size: int
) -> None:
    answer = exchange(full, post(b"x" * size), LAST)
    assert (answer.count(b"HTTP/1.1 503 "), answer.count(b"HTTP/1.1 200 OK")) == (1, 1)
    # Who closes it after the answer reads the answer, however much it sent.
    assert exchange(full, post(b"x" * size, "Connection: close")).count(REFUSED.encode()) == 1


def test_a_body_in_chunks_is_taken_in_too(full: Server) -> None:
    chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    head = post(b"", "Transfer-Encoding: chunked", length=False)
    answer = exchange(full, head, chunk * 20, b"0\r\n\r\n", LAST)
    assert (answer.count(b"HTTP/1.1 503 "), answer.count(b"HTTP/1.1 200 OK")) == (1, 1)


def test_a_client_that_waits_to_be_told_to_send_its_body_is_told_no_at_once(full: Server) -> None:
    head = post(b"", "Content-Length: 1000000", "Expect: 100-continue", length=False)
    answer = exchange(full, head)
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"100 Continue" not in answer
    assert b"connection: close" in answer.lower()


def test_a_body_that_grows_too_large_is_refused_for_that(full: Server) -> None:
    with serving(FakeEngine(), Limits(max_body_bytes=1000)) as server:
        server.engine.crowd_inside = FULL
        chunk = b"1000\r\n" + b"x" * 4096 + b"\r\n"
        head = post(b"", "Transfer-Encoding: chunked", "Connection: close", length=False)
        assert exchange(server, head + chunk + b"0\r\n\r\n").startswith(b"HTTP/1.1 413 ")


def test_a_client_that_leaves_in_the_middle_of_its_body_ends_in_silence(full: Server) -> None:
    with socket.create_connection(("127.0.0.1", full.port), timeout=60) as connection:
        connection.sendall(post(b"x" * 1000)[:-500])
    assert full.get("/health").status_code == 200


def test_a_client_that_keeps_its_connection_is_refused_and_then_served_on_it(full: Server) -> None:
    with httpx.Client(base_url=full.url, timeout=60) as client:
        first = client.post("/v1/completions", json={"prompt": "turn"})
        full.engine.crowd_inside = replace(FULL, limits=QueueConfig(100, 1000))
        second = client.post("/v1/completions", json={"prompt": "turn"})
    assert (first.status_code, second.status_code) == (503, 200)
