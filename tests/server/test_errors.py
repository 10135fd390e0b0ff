from __future__ import annotations

import json
import socket
from typing import Any

import pytest

from noria.config.errors import EngineError, RequestError
from noria.server.limits import Limits
from support_server import CHAT, FakeEngine, Server, served_model, serving

JSON = {"content-type": "application/json"}


def check_shape(answer: Any, status: int) -> dict[str, Any]:
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-request-id"]
    body = answer.json()
    assert set(body) == {"error"}
    error = body["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["code"] == status
    assert isinstance(error["message"], str)
    return error


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"text"',
        b"5",
        b"\xff\xfe",
        b'{"messages": NaN}',
        b'{"temperature": Infinity}',
        b'{"temperature": 1e999}',
        b'{"model": "\\ud800"}',
        b"[" * 100_000,
        b'{"a":' * 5000 + b"1" + b"}" * 5000,
    ],
)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_a_body_that_is_not_a_json_object_is_a_400(server: Server, path: str, body: bytes) -> None:
    error = check_shape(server.client.post(path, content=body, headers=JSON), 400)
    assert error["type"] == "BadRequestError"
    assert len(error["message"]) <= 300


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_a_body_of_another_type_is_a_400(server: Server, content_type: str) -> None:
    answer = server.client.post(
        "/v1/chat/completions", content=json.dumps(CHAT), headers={"content-type": content_type}
    )
    assert "Content-Type: application/json" in check_shape(answer, 400)["message"]


@pytest.mark.parametrize(
    "content_type", ["application/json; charset=utf-8", "APPLICATION/JSON", "application/x+json"]
)
def test_json_by_any_of_its_names_is_read(server: Server, content_type: str) -> None:
    answer = server.client.post(
        "/v1/chat/completions", content=json.dumps(CHAT), headers={"content-type": content_type}
    )
    assert answer.status_code == 200


def test_at_most_ten_faults_of_two_hundred_characters_are_told(server: Server) -> None:
    names = ["n", "max_tokens", "temperature", "top_p", "top_k", "min_p", "seed", "stream", "echo"]
    names += ["priority", "ignore_eos", "model", "request_id"]
    error = check_shape(server.chat(**{name: ["x" * 10_000] for name in names}), 400)
    assert error["param"] in names
    assert error["message"].count(";") == 10
    assert error["message"].endswith("and 3 more")
    assert len(error["message"]) <= 11 * 202


def test_a_message_never_quotes_without_bound(server: Server) -> None:
    error = check_shape(server.chat(model="x" * 100_000), 404)
    assert len(error["message"]) < 300
    error = check_shape(server.chat(stop_token_ids=["x" * 100_000]), 400)
    assert len(error["message"]) <= 2000


def test_a_model_that_is_not_served_is_a_404(server: Server) -> None:
    for answer in (server.chat(model="x"), server.complete(model="x"), server.get("/v1/models/x")):
        error = check_shape(answer, 404)
        assert error["message"] == "The model `x` does not exist. This server has `wheel`, `wheel-alias`."
        assert (error["type"], error["param"]) == ("NotFoundError", "model")


def test_an_unknown_path_is_a_404_that_says_where_the_routes_are(server: Server) -> None:
    error = check_shape(server.get("/models?" + "x" * 200), 404)
    assert error["message"] == (
        "There is nothing at `/models`. OpenAI clients ask under /v1, as in /v1/chat/completions."
    )
    assert len(check_shape(server.get("/" + "x" * 10_000), 404)["message"]) < 300
    check_shape(server.get("/v1/chat/completions/"), 404)


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/chat/completions", {"POST"}),
        ("PUT", "/v1/completions", {"POST"}),
        ("DELETE", "/v1/models", {"GET", "HEAD"}),
        ("POST", "/health", {"GET", "HEAD"}),
    ],
)
def test_a_wrong_method_is_a_405_that_names_the_right_one(
    server: Server, method: str, path: str, allowed: set[str]
) -> None:
    answer = server.client.request(method, path)
    assert check_shape(answer, 405)["type"] == "MethodNotAllowedError"
    assert set(answer.headers["allow"].split(", ")) == allowed


def test_a_body_above_the_limit_is_a_413_by_its_stated_or_its_real_length() -> None:
    with serving(FakeEngine(), Limits(max_body_bytes=1000)) as server:
        check_shape(server.chat(user="x" * 1000), 413)

        def parts() -> Any:
            yield b'{"user": "'
            for _ in range(100):
                yield b"x" * 20

        check_shape(server.client.post("/v1/chat/completions", content=parts(), headers=JSON), 413)
        assert server.chat(user="x" * 500).status_code == 200
        assert len(server.engine.submitted) == 1


def test_headers_are_bounded() -> None:
    with serving(FakeEngine(), Limits(max_headers=20, max_header_bytes=5000)) as server:
        for headers in ([f"X-{i}: 1" for i in range(30)], ["X-Long: " + "x" * 6000]):
            lines = "".join(f"{header}\r\n" for header in headers)
            with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
                connection.sendall(f"GET /version HTTP/1.1\r\n{lines}\r\n".encode())
                received = b"".join(iter(lambda: connection.recv(4096), b""))
            assert received.startswith(b"HTTP/1.1 400 ")
        assert server.get("/version").status_code == 200


@pytest.mark.parametrize("head", [b"GET /", b"GET /version HTTP/1.1\r\nX: ", b"GET /version HTTP/1.1\r\nX"])
def test_a_head_that_never_ends_is_refused_once_it_is_too_long(head: bytes) -> None:
    with serving(FakeEngine(), Limits(max_header_bytes=50_000)) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
            connection.sendall(head)
            connection.setblocking(True)
            sent = 0
            try:
                while sent < 20_000_000:  # a buffer or two beyond the limit are on their way when it closes
                    sent += connection.send(b"a" * 10_000)
                received = b""
            except OSError:
                received = b"closed"
            assert received == b"closed"
        assert server.get("/version").status_code == 200


def test_a_guarded_server_wants_one_of_its_keys() -> None:
    wrong = ("Bearer", "Bearer wrong", "Basic first", "first", "Bearer first second", "Bearer fırst")
    with serving(FakeEngine(), api_key=("first", "zweiter-schlüssel")) as server:
        for headers in ({}, *({"authorization": value.encode()} for value in wrong)):
            answer = server.client.get("/v1/models", headers=headers)
            assert check_shape(answer, 401)["type"] == "AuthenticationError"
            assert answer.headers["www-authenticate"] == "Bearer"
        for key in ("first", "zweiter-schlüssel"):
            right = {"authorization": f"bearer {key}".encode()}
            assert server.client.get("/v1/models", headers=right).status_code == 200
        for probe in ("/health", "/ready", "/ping", "/version", "/metrics"):
            assert server.get(probe).status_code == 200
        for guarded in ("/debug/timeline", "/openapi.json", "/docs", "/nothing"):
            assert server.get(guarded).status_code == 401


def test_a_request_the_engine_refuses_is_a_400() -> None:
    engine = FakeEngine()
    engine.submit_error = RequestError("too strange", "n")
    with serving(engine) as server:
        error = check_shape(server.chat(stream=True), 400)
        assert (error["message"], error["param"]) == ("too strange", "n")


def test_a_dead_engine_is_a_503_that_says_when_to_come_back() -> None:
    engine = FakeEngine()
    engine.submit_error = EngineError("the engine failed: /secret/path")
    with serving(engine) as server:
        answer = server.chat()
        error = check_shape(answer, 503)
        assert error["type"] == "ServiceUnavailableError"
        assert "secret" not in error["message"]
        assert int(answer.headers["retry-after"]) > 0


def test_a_fault_of_the_server_tells_nothing_of_its_insides() -> None:
    engine = FakeEngine()
    engine.submit_error = ZeroDivisionError("/secret/path.py line 5")
    with serving(engine) as server:
        answer = server.chat()
        error = check_shape(answer, 500)
        assert error["type"] == "InternalServerError"
        assert "secret" not in answer.text
        assert "Traceback" not in answer.text


def test_a_request_id_that_is_not_fit_for_a_header_is_replaced(server: Server) -> None:
    for bad in (b"", b"a b", b"x" * 129, "ü".encode()):
        answer = server.client.get("/v1/models", headers={"x-request-id": bad})
        assert len(answer.headers["x-request-id"]) == 32
    kept = server.client.get("/v1/models", headers={"x-request-id": "trace-1"})
    assert kept.headers["x-request-id"] == "trace-1"


def test_errors_answer_the_request_id_too(server: Server) -> None:
    answer = server.client.post("/v1/completions", content=b"{", headers={**JSON, "x-request-id": "mine"})
    assert answer.status_code == 400
    assert answer.headers["x-request-id"] == "mine"


def test_a_served_name_may_contain_slashes() -> None:
    with serving(FakeEngine(), model=served_model(names=("org/wheel",))) as server:
        assert server.get("/v1/models/org/wheel").json() == server.get("/v1/models").json()["data"][0]
        assert server.chat(model="org/wheel").status_code == 200
