"""A body that comes behind its answer: taken in as far as clients need it, and no further."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from noria.server.limits import Limits
from support_server import FakeEngine, Server, serving

MAX_BODY = 100_000
KEY = "Authorization: Bearer sk-wheel"
CHUNKED = "Transfer-Encoding: chunked"
LAST = b"GET /version HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


@pytest.fixture(scope="module")
def guarded() -> Iterator[Server]:
    with serving(FakeEngine(), Limits(max_body_bytes=MAX_BODY), api_key=["sk-wheel"]) as server:
        yield server


def head(path: str, *headers: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: x", "Content-Type: application/json", *headers]
    return "\r\n".join((*lines, "", "")).encode()


def until_closed(connection: socket.socket) -> bytes:
    return b"".join(iter(lambda: connection.recv(65536), b""))


def chunk(size: int) -> bytes:
    return b"%x\r\n%b\r\n" % (size, b"x" * size)


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/v1/completions", (CHUNKED,), 401),
        ("/v1/completions", (CHUNKED, KEY), 413),
        ("/v1/completions", ("Content-Length: 900000000000", KEY), 413),
        ("/nothing", (CHUNKED, KEY), 404),
        ("/health", (CHUNKED,), 405),
    ],
)
def test_an_endless_body_is_answered_and_ends_with_its_connection(
    guarded: Server, path: str, headers: tuple[str, ...], status: int
) -> None:
    piece = chunk(MAX_BODY // 10)
    with socket.create_connection(("127.0.0.1", guarded.port), timeout=60) as connection:
        # Not yet all that is taken in: whoever reads now reads the answer.
        connection.sendall(head(path, *headers) + piece * 12)
        assert connection.recv(4096).startswith(b"HTTP/1.1 %d " % status)
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            for _ in range(5000):  # 50 MB, far more than buffers on the way hold
                connection.sendall(piece)
    assert guarded.get("/health").status_code == 200


@pytest.mark.parametrize(
    ("headers", "size", "status"),
    [((), MAX_BODY, 401), ((KEY,), MAX_BODY + 1, 413), ((KEY,), 2 * MAX_BODY, 413)],
)
@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_client_that_reads_when_it_has_sent_all_of_a_body_goes_on_with_its_connection(
    guarded: Server, headers: tuple[str, ...], size: int, status: int, is_chunked: bool
) -> None:
    framing, body = (
        (CHUNKED, chunk(size) + b"0\r\n\r\n") if is_chunked else (f"Content-Length: {size}", b"x" * size)
    )
    with socket.create_connection(("127.0.0.1", guarded.port), timeout=60) as connection:
        connection.sendall(head("/v1/completions", framing, *headers) + body)
        connection.sendall(LAST)
        answers = until_closed(connection)
    assert answers.startswith(b"HTTP/1.1 %d " % status)
    assert answers.count(b"HTTP/1.1 200 OK") == 1


def test_each_body_of_a_connection_is_counted_by_itself(guarded: Server) -> None:
    request = head("/v1/completions", f"Content-Length: {MAX_BODY}") + b"x" * MAX_BODY
    with socket.create_connection(("127.0.0.1", guarded.port), timeout=60) as connection:
        for _ in range(4):
            connection.sendall(request)
        connection.sendall(LAST)
        answers = until_closed(connection)
    assert (answers.count(b"HTTP/1.1 401 "), answers.count(b"HTTP/1.1 200 OK")) == (4, 1)
