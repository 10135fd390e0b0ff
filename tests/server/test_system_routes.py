from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

import noria
from noria.config.errors import RequestError
from noria.config.serving import ServerOptions
from noria.server.app import create_app
from noria.server.limits import Limits
from support_server import TEXT, FakeEngine, Server, served_model, serving, serving_app, tokenizer


def test_models_are_listed_under_every_name(server: Server) -> None:
    assert server.get("/v1/models").json() == {
        "object": "list",
        "data": [
            {
                "id": name,
                "object": "model",
                "created": 1700000000,
                "owned_by": "noria",
                "root": "wheel",
                "parent": None,
                "max_model_len": 64,
                "tasks": ["generate", "embed", "token_embed", "score"],
            }
            for name in ("wheel", "wheel-alias")
        ],
    }
    assert server.get("/v1/models/wheel").json() == server.get("/v1/models").json()["data"][0]


def test_the_timeline_is_made_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noria.server.system_routes._FRESH_S", 1000.0)
    engine = FakeEngine()
    made_on: list[str] = []

    def timeline() -> dict[str, Any]:
        made_on.append(threading.current_thread().name)
        return {"traceEvents": [{"ph": "X", "name": "step 1"}]}

    app = create_app(engine, served_model(), ServerOptions(), timeline)
    with serving_app(app, engine) as server:
        assert server.get("/debug/timeline").json() == {"traceEvents": [{"ph": "X", "name": "step 1"}]}
        assert made_on != [server.thread.name]
        with ThreadPoolExecutor(8) as threads:
            answers = list(threads.map(lambda _: server.get("/debug/timeline").content, range(40)))
        assert len(set(answers)) == 1
        assert len(made_on) == 1  # once in so many seconds, however often it is asked for


def sent_behind_head(server: Server, path: str) -> bytes:
    """As it comes over the line: clients of HTTP look for nothing there."""
    url = httpx.URL(server.url)
    with socket.create_connection((url.host, url.port or 80), timeout=30) as line:
        line.sendall(f"HEAD {path} HTTP/1.1\r\nHost: {url.host}\r\nConnection: close\r\n\r\n".encode())
        told = b"".join(iter(lambda: line.recv(65536), b""))
    head, _, behind = told.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 ")
    return behind


@pytest.mark.parametrize("path", ["/health", "/ready", "/ping", "/version", "/metrics", "/"])
def test_head_is_answered_as_get_is_without_a_body(server: Server, path: str) -> None:
    asked, told = server.get(path), server.client.head(path)
    assert told.status_code == asked.status_code == 200
    assert sent_behind_head(server, path) == b""
    assert told.headers.get("content-type") == asked.headers.get("content-type")


def test_browsers_find_the_dashboard_at_the_root_and_other_clients_a_server_that_runs(server: Server) -> None:
    assert server.get("/").text == "Ollama is running"
    page = server.get("/", headers={"accept": "text/html,application/xhtml+xml,*/*;q=0.8"})
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert {page.headers["vary"], server.get("/").headers["vary"]} == {"accept"}


def test_the_version_is_that_of_the_code_that_runs(server: Server) -> None:
    assert server.get("/version").json() == {"version": noria.__version__}
    assert server.get("/openapi.json").json()["info"]["version"] == noria.__version__


@pytest.mark.parametrize(
    "path", ["/health", "/ready", "/ping", "/version", "/metrics", "/load", "/server_info", "/v1/models",
             "/v1/models/wheel", "/v1/models/none", "/debug/timeline"]
)  # fmt: skip
def test_head_says_what_get_says_without_its_content(server: Server, path: str) -> None:
    with httpx.Client(base_url=server.url, timeout=60) as client:
        head, whole = client.head(path), client.get(path)
    assert (head.status_code, head.headers["content-type"] if whole.content else None) == (
        whole.status_code,
        whole.headers["content-type"] if whole.content else None,
    )
    assert sent_behind_head(server, path) == b""


def test_what_a_measurement_belongs_to_is_told() -> None:
    told = {"model": {"hash": "abc"}, "settings": {"dtype": "float32"}}
    with serving(FakeEngine(), model=served_model(fingerprint=lambda: told)) as fingerprinted:
        assert fingerprinted.get("/server_info").json() == {"version": noria.__version__, **told}


def references(schema: Any) -> set[str]:
    if isinstance(schema, dict):
        own = {schema["$ref"]} if isinstance(schema.get("$ref"), str) else set()
        return own.union(*(references(value) for value in schema.values()))
    return set().union(*(references(item) for item in schema)) if isinstance(schema, list) else set()


def test_the_openapi_document_describes_the_bodies_and_resolves(server: Server) -> None:
    document = server.get("/openapi.json").json()
    assert document == server.get("/openapi.json").json()
    schemas = document["components"]["schemas"]
    assert references(document) == {f"#/components/schemas/{name}" for name in schemas}
    chat = schemas["ChatCompletionRequest"]
    assert chat["required"] == ["messages"]
    assert {"temperature", "max_completion_tokens", "stream_options"} <= set(chat["properties"])
    assert schemas["CompletionRequest"]["required"] == ["prompt"]
    described = [operation for path in document["paths"].values() for operation in path.values()]
    assert len({operation["operationId"] for operation in described}) == len(described) > 20
    assert all("422" not in operation["responses"] for operation in described)


@pytest.mark.parametrize(("path", "shown_by"), [("/docs", "swagger-ui"), ("/redoc", "redoc")])
def test_people_are_shown_the_openapi_document_of_this_address(
    server: Server, path: str, shown_by: str
) -> None:
    page = server.get(path)
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert shown_by in page.text
    assert '"openapi.json"' in page.text  # beside the page, wherever a proxy puts both


class WatchedTokenizer:
    """The real tokenizer; tells on which thread texts are encoded, and can be made to take for ever."""

    def __init__(self) -> None:
        self.threads: list[str] = []
        self.templates_at_work = threading.Semaphore(0)  # up by one for each that begins
        self.may_go_on = threading.Event()
        self.may_go_on.set()

    def __getattr__(self, name: str) -> Any:
        return getattr(tokenizer(), name)

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        self.threads.append(threading.current_thread().name)
        return tokenizer().encode(text, add_special_tokens)

    def encode_chat(self, *arguments: Any) -> list[int]:
        self.threads.append(threading.current_thread().name)
        self.templates_at_work.release()
        assert self.may_go_on.wait(60)
        return tokenizer().encode_chat(*arguments)


def test_long_texts_and_templates_are_kept_off_the_loop() -> None:
    watched = WatchedTokenizer()
    with serving(FakeEngine(), Limits(long_text=20), served_model(tokenizer=watched)) as server:
        server.complete(prompt=["short", "texts"])
        server.complete(prompt=["a text that alone is long"])
        server.complete(prompt=["texts that", "together are", "long"])
        server.chat()
        assert watched.threads[:2] == [server.thread.name] * 2
        assert len(watched.threads) == 7
        assert watched.threads[2:] == ["noria-tokenize"] * 4 + ["noria-template"]


def test_a_template_that_takes_for_ever_is_given_up_and_the_server_goes_on() -> None:
    watched = WatchedTokenizer()
    watched.may_go_on.clear()
    limits = Limits(template_timeout_s=0.05)
    with serving(FakeEngine(), limits, served_model(tokenizer=watched)) as server:
        answer = server.chat()
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "messages")
        assert "0.05 s" in answer.json()["error"]["message"]
        assert server.complete().status_code == 200
        watched.may_go_on.set()


def test_templates_that_take_for_ever_keep_no_others_from_being_served() -> None:
    watched = WatchedTokenizer()
    watched.may_go_on.clear()
    limits = Limits(template_timeout_s=0.05, thread_wait_s=0.05, max_hung_templates=3, long_text=4)
    with serving(FakeEngine(), limits, served_model(tokenizer=watched)) as server:
        for _ in range(2 + 3):  # all the threads, and all that replace them
            assert server.chat().status_code == 400
        refused = server.chat()
        assert refused.status_code == 503
        assert int(refused.headers["retry-after"]) > 0
        assert 'reason="threads_busy"} 1.0' in server.get("/metrics").text
        assert server.complete(prompt="a long text").status_code == 200
        watched.may_go_on.set()
        while server.chat().status_code != 200:
            pass


def test_a_chat_that_waits_for_others_is_not_blamed_for_it() -> None:
    watched = WatchedTokenizer()
    watched.may_go_on.clear()
    limits = Limits(template_timeout_s=1000, thread_wait_s=0.05)
    with serving(FakeEngine(), limits, served_model(tokenizer=watched)) as server:
        with ThreadPoolExecutor(2) as clients:
            busy = [clients.submit(server.chat) for _ in range(2)]
            for _ in busy:
                assert watched.templates_at_work.acquire(timeout=60)
            refused = server.chat()
            watched.may_go_on.set()
        assert [answer.result().status_code for answer in busy] == [200, 200]
        assert (refused.status_code, refused.json()["error"]["type"]) == (503, "ServiceUnavailableError")


@pytest.mark.parametrize("error", [RequestError("no such token", "messages"), RecursionError()])
def test_what_the_template_refuses_is_a_400(error: Exception) -> None:
    class Refusing(WatchedTokenizer):
        def encode_chat(self, *arguments: Any) -> list[int]:
            raise error

    with serving(FakeEngine(), model=served_model(tokenizer=Refusing())) as server:
        assert server.chat().status_code == 400
        assert server.complete(**TEXT).status_code == 200
