"""What the protocol refuses before anything is set up for it; tests/server/test_admission.py has what is refused."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from noria.server.middleware import is_request_id
from support_intake import FULL
from support_processes import until
from support_server import FakeEngine, Server, serving

BODY = b'{"prompt": "turn", "max_tokens": 3}'


def post(*headers: str, path: str = "/v1/completions", body: bytes = BODY) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


class Watched:
    """A server with a full engine, and how often its app was asked."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.num_asked = 0
        self._app = server.server.config.loaded_app
        server.engine.crowd_inside = FULL

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.num_asked += 1
        await self._app(scope, receive, send)

    def ask(self, *parts: bytes) -> bytes:
        """What comes back on one connection, until the server closes it."""
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=60) as connection:
            for part in parts:
                connection.sendall(part)
            answer = b""
            while piece := connection.recv(65536):
                answer += piece
            return answer


def watched(server: Server) -> Watched:
    assert server.get("/health").status_code == 200  # it is there
    found = Watched(server)
    server.server.config.loaded_app = found
    return found


@pytest.fixture
def full() -> Iterator[Watched]:
    with serving(FakeEngine()) as server:
        yield watched(server)


CLOSE = "Connection: close"


def test_a_plain_request_is_refused_without_the_app(full: Watched) -> None:
    answer = full.ask(post(CLOSE))
    assert answer.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
    assert full.num_asked == 0
    (name,) = re.findall(rb"x-request-id: (.*)\r\n", answer)
    assert is_request_id(name.decode())
    assert b"connection: close\r\n" in answer


def test_ids_given_to_refusals_differ(full: Watched) -> None:
    answer = full.ask(post(), post(), post(CLOSE))
    assert len(set(re.findall(rb"x-request-id: (.*)\r\n", answer))) == 3
    assert full.num_asked == 0


def test_a_body_that_comes_behind_its_head_is_waited_for(full: Watched) -> None:
    head, body = post().split(b"\r\n\r\n")
    with socket.create_connection(("127.0.0.1", full.server.port), timeout=60) as connection:
        connection.sendall(head + b"\r\n\r\n" + body[:5])
        gate = full.server.app.state.switchboard.gate
        until(lambda: gate.num_inside == 1)
        connection.sendall(body[5:])
        assert connection.recv(65536).startswith(b"HTTP/1.1 503 ")
        assert gate.num_inside == 0


def test_whoever_leaves_before_the_body_is_there_is_not_waited_for(full: Watched) -> None:
    gate = full.server.app.state.switchboard.gate
    with socket.create_connection(("127.0.0.1", full.server.port), timeout=60) as connection:
        connection.sendall(post()[:-5])
        until(lambda: gate.num_inside == 1)
    until(lambda: gate.num_inside == 0)


@pytest.mark.parametrize(
    "request_of",
    [
        lambda: post(CLOSE, "Expect: 100-continue"),
        lambda: post(CLOSE, "endpoint-load-metrics-format: TEXT"),
        lambda: post(CLOSE, body=b"x" * 70_000),
        lambda: post(CLOSE, "X-Request-Timeout: soon"),
        lambda: post(CLOSE, path="/v1/nothing"),
    ],
)
def test_what_is_not_plain_is_for_the_app(full: Watched, request_of: Any) -> None:
    assert full.ask(request_of()).startswith(b"HTTP/1.1 ")
    assert full.num_asked == 1


@pytest.mark.parametrize("path", ["/proxy/v1/completions", "/v1/completions"])
def test_a_path_behind_a_proxys_is_known(path: str) -> None:
    with serving(FakeEngine(), root_path="/proxy/") as server:
        full = watched(server)
        assert full.ask(post(CLOSE, path=path)).startswith(b"HTTP/1.1 503 ")
        assert full.num_asked == 0


def test_pages_of_other_origins_get_their_headers_from_the_app() -> None:
    with serving(FakeEngine(), allowed_origins=["https://a.example"]) as server:
        full = watched(server)
        answer = full.ask(post(CLOSE, "Origin: https://a.example"))
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"access-control-allow-origin: https://a.example" in answer


def test_an_unknown_key_is_told_so_and_a_known_one_is_refused() -> None:
    with serving(FakeEngine(), api_key=["sk-wheel"]) as server:
        full = watched(server)
        assert full.ask(post(CLOSE)).startswith(b"HTTP/1.1 401 ")
        assert full.ask(post(CLOSE, "Authorization: Bearer sk-other")).startswith(b"HTTP/1.1 401 ")
        assert full.num_asked == 2
        assert full.ask(post(CLOSE, "Authorization: Bearer sk-wheel")).startswith(b"HTTP/1.1 503 ")
        by_header = post(CLOSE, "x-api-key: sk-wheel", path="/v1/messages")
        assert b"overloaded_error" in full.ask(by_header)
        assert full.num_asked == 2


def lines_of(text: str) -> list[tuple[str, int]]:
    """Who was refused, and how many, by each line of the access log."""
    found = re.findall(r'uvicorn: (\S+)(?: more)? - "POST (\S+) HTTP/1.1" 503', text)
    return [(path, int(who) if who.isdecimal() else 1) for who, path in found]


def test_refusals_in_a_row_share_a_line_of_the_access_log_and_all_are_told(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("noria.server.access_log._TELL_EVERY_S", 1000.0)  # they are told when the server ends
    with serving(FakeEngine(), uvicorn_log_level="info") as server:
        full = watched(server)
        full.ask(*[post()] * 9, post(CLOSE, path="/v1/responses"))
    lines = lines_of(capfd.readouterr().out)
    assert lines == [("/v1/completions", 1), ("/v1/completions", 8), ("/v1/responses", 1)]


@pytest.mark.parametrize(
    "options",
    [{"disable_uvicorn_access_log": True}, {"disable_access_log_for_endpoints": ["/v1/completions"]}],
)
def test_refusals_are_not_told_where_no_line_is_wanted(
    capfd: pytest.CaptureFixture[str], options: dict[str, Any]
) -> None:
    with serving(FakeEngine(), uvicorn_log_level="info", **options) as server:
        watched(server).ask(post(), post(CLOSE))
    assert lines_of(capfd.readouterr().out) == []


@pytest.mark.parametrize("query", ["", "?user=7&from=a%20b", "?a?b=%0a"])
def test_the_line_of_a_refusal_has_the_query_as_any_requests_has(
    capfd: pytest.CaptureFixture[str], query: str
) -> None:
    with serving(FakeEngine(), uvicorn_log_level="info") as server:
        path = f"/v1/completions{query}"
        answer = watched(server).ask(post(CLOSE, path=path))
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert lines_of(capfd.readouterr().out) == [(path, 1)]
