"""How clients reach the server: Unix sockets, HTTPS, proxies, other sites' pages; and which requests are logged."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from noria.config.connections import ConnectionOptions
from noria.config.errors import ConfigError
from noria.config.parse import from_mapping
from noria.config.serving import ServerOptions
from noria.server.access_log import PathFilter
from noria.server.sockets import address_of, bind, check_certificates, release
from support_server import FakeEngine, serving

ORIGIN = "https://pages.example"


@pytest.fixture
def unix_path(tmp_path: Path) -> str:
    return str(tmp_path / "noria.sock")


def test_a_unix_socket_is_served_on_and_goes_with_the_server(unix_path: str) -> None:
    options = from_mapping(ServerOptions, {"uds": unix_path})
    bound = bind(options)
    assert address_of(bound, options.connections) == f"http on the socket {unix_path}"
    with serving(FakeEngine(), bound=bound, uds=unix_path) as server:
        assert server.get("/v1/models").json()["data"][0]["id"] == "wheel"
        assert server.complete(stream=True).text.endswith("data: [DONE]\n\n")
    release(bound, options)
    assert not Path(unix_path).exists()


def test_a_socket_left_by_a_server_that_is_gone_is_replaced_and_no_other(unix_path: str) -> None:
    options = from_mapping(ServerOptions, {"uds": unix_path})
    left = bind(options)
    left.close()
    running = bind(options)
    running.listen()
    with pytest.raises(ConfigError, match=f"cannot listen on {unix_path}: .*--uds"):
        bind(options)
    release(running, options)
    Path(unix_path).write_text("something else")
    with pytest.raises(ConfigError, match="cannot listen on"):
        bind(options)
    assert Path(unix_path).read_text() == "something else"


@pytest.mark.parametrize("path", ["x" * 200, "/no/such/directory/noria.sock"])
def test_a_path_that_no_socket_can_have_is_a_clear_error(path: str) -> None:
    with pytest.raises(ConfigError, match=r"cannot listen on .*; choose another with --uds"):
        bind(from_mapping(ServerOptions, {"uds": path}))


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """server.pem and its server.key, signed by themselves; locked.key is the same under a password."""
    directory = tmp_path_factory.mktemp("certificates")
    make = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    make += [
        "-addext",
        "subjectAltName=DNS:localhost,IP:127.0.0.1",
        "-keyout",
        "server.key",
        "-out",
        "server.pem",
    ]
    lock = ["rsa", "-aes256", "-in", "server.key", "-out", "locked.key", "-passout", "pass:turn"]
    for command in (make, lock):
        subprocess.run(["openssl", *command], cwd=directory, check=True, capture_output=True)
    return directory


@contextlib.contextmanager
def https_client(port: int, certificates: Path, with_certificate: bool = False) -> Iterator[httpx.Client]:
    context = ssl.create_default_context(cafile=str(certificates / "server.pem"))
    if with_certificate:
        context.load_cert_chain(certificates / "server.pem", certificates / "server.key")
    with httpx.Client(base_url=f"https://127.0.0.1:{port}", verify=context, timeout=60) as client:
        yield client


@pytest.mark.parametrize(("key", "password"), [("server.key", None), ("locked.key", "turn")])
def test_https_is_spoken_with_a_certificate(certificates: Path, key: str, password: str | None) -> None:
    options = {
        "ssl_certfile": str(certificates / "server.pem"),
        "ssl_keyfile": str(certificates / key),
        "ssl_keyfile_password": password,
    }
    with serving(FakeEngine(), **options) as server:
        with https_client(server.port, certificates) as client:
            assert client.get("/health").status_code == 200
            answer = client.post("/v1/completions", json={"prompt": "a", "stream": True})
            assert answer.text.endswith("data: [DONE]\n\n")
        with pytest.raises(httpx.TransportError):
            httpx.get(f"http://127.0.0.1:{server.port}/health", timeout=60)


def test_clients_must_show_a_certificate_where_authorities_are_named(certificates: Path) -> None:
    options = {
        "ssl_certfile": str(certificates / "server.pem"),
        "ssl_keyfile": str(certificates / "server.key"),
        "ssl_ca_certs": str(certificates / "server.pem"),
    }
    with serving(FakeEngine(), **options) as server:
        with https_client(server.port, certificates, with_certificate=True) as client:
            assert client.get("/health").status_code == 200
        with https_client(server.port, certificates) as client, pytest.raises(httpx.TransportError):
            client.get("/health")


@pytest.mark.parametrize(
    "options",
    [
        {"ssl_certfile": "missing.pem"},
        {"ssl_certfile": "server.key"},
        {"ssl_certfile": "server.pem", "ssl_keyfile": "missing.key"},
        {"ssl_certfile": "server.pem", "ssl_keyfile": "locked.key"},
        {"ssl_certfile": "server.pem", "ssl_keyfile": "locked.key", "ssl_keyfile_password": "wrong"},
        {"ssl_certfile": "server.pem", "ssl_keyfile": "server.key", "ssl_ca_certs": "missing.pem"},
        {"ssl_keyfile": "server.key"},
        {"ssl_ca_certs": "server.pem"},
    ],
)
def test_certificates_that_do_not_work_are_refused_by_name(
    certificates: Path, options: dict[str, str]
) -> None:
    files = {name: text if "password" in name else str(certificates / text) for name, text in options.items()}
    with pytest.raises(ConfigError, match="ssl_") as caught:
        check_certificates(ConnectionOptions(**files))
    assert "wrong" not in str(caught.value)


@pytest.mark.parametrize("prefix", ["", "/noria"])
def test_a_proxys_prefix_may_be_there_or_taken_off(prefix: str) -> None:
    with serving(FakeEngine(), root_path="/noria", api_key="k") as server:
        assert server.get(f"{prefix}/health").status_code == 200
        assert server.get(f"{prefix}/v1/models").status_code == 401
        answer = server.get(f"{prefix}/v1/models", headers={"Authorization": "Bearer k"})
        assert answer.json()["data"][0]["id"] == "wheel"


@pytest.mark.parametrize("prefix", ["", "/noria"])
def test_the_apis_page_names_a_proxys_prefix(prefix: str) -> None:
    with serving(FakeEngine(), root_path="/noria") as server:
        assert server.get(f"{prefix}/openapi.json").json()["servers"] == [{"url": "/noria"}]
    with serving(FakeEngine()) as server:
        assert "servers" not in server.get("/openapi.json").json()


@pytest.mark.parametrize("root_path", ["noria", "/", "//"])
def test_a_root_path_must_name_something(root_path: str) -> None:
    with pytest.raises(ConfigError, match="root_path must begin with /"):
        from_mapping(ServerOptions, {"root_path": root_path})


def test_other_sites_pages_may_use_the_server_only_where_they_are_named() -> None:
    preflight = {"Origin": ORIGIN, "Access-Control-Request-Method": "POST"}
    with serving(FakeEngine()) as server:
        assert (
            "access-control-allow-origin" not in server.get("/v1/models", headers={"Origin": ORIGIN}).headers
        )
        assert server.client.options("/v1/completions", headers=preflight).status_code == 405
    with serving(FakeEngine(), allowed_origins=[ORIGIN], api_key="k") as server:
        asked = server.client.options("/v1/completions", headers=preflight)
        assert (asked.status_code, asked.headers["access-control-allow-origin"]) == (200, ORIGIN)
        refused = server.get("/v1/models", headers={"Origin": ORIGIN})  # its page may read why
        assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, ORIGIN)
        other = server.get("/v1/models", headers={"Origin": "https://other.example"})
        assert "access-control-allow-origin" not in other.headers


@pytest.mark.parametrize("name", ["allowed_origins", "allowed_methods", "allowed_headers"])
@pytest.mark.parametrize("text", ['["*"]', "", "a b", "https://", "https://a/b"])
def test_what_is_no_origin_and_no_name_is_refused_rather_than_never_met(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=rf"{name} must be \* or "):
        from_mapping(ServerOptions, {name: [text]})


def test_the_pages_about_the_routes_can_be_left_out() -> None:
    with serving(FakeEngine(), disable_fastapi_docs=True) as server:
        assert [server.get(path).status_code for path in ("/docs", "/redoc", "/openapi.json")] == [404] * 3


def test_a_request_line_is_logged_unless_its_path_is_named() -> None:
    paths = PathFilter(("/health", "/metrics"))

    def line(path: str) -> logging.LogRecord:
        arguments = ("127.0.0.1:1", "GET", path, "1.1", 200)
        return logging.LogRecord(
            "uvicorn.access", logging.INFO, "", 0, '%s - "%s %s HTTP/%s" %d', arguments, None
        )

    assert [paths.filter(line(path)) for path in ("/health", "/metrics?a=1", "/healthy", "/v1/models")] == [
        False,
        False,
        True,
        True,
    ]


def test_the_access_log_follows_the_options(capfd: pytest.CaptureFixture[str]) -> None:
    settings = {"uvicorn_log_level": "info"}
    with serving(FakeEngine(), disable_access_log_for_endpoints=["/health"], **settings) as server:
        server.get("/health")
        server.get("/version")
    logged = capfd.readouterr()
    (line,) = [line for line in logged.out.splitlines() if "GET /version" in line]
    assert re.match(rf"\d{{4}}-\d\d-\d\d [\d:,]+ INFO {os.getpid()} uvicorn: 127.0.0.1:\d+ - ", line)
    assert "GET /health" not in logged.out
    # What it says of its start and end, we say.
    assert "uvicorn" not in logged.err
    assert {line.split()[4] for line in logged.out.splitlines()} <= {"uvicorn:", "noria.server:"}
    with serving(FakeEngine(), disable_uvicorn_access_log=True, **settings) as server:
        server.get("/version")
    assert "GET /version" not in capfd.readouterr().out


def test_a_port_is_shown_as_its_url() -> None:
    options = from_mapping(ServerOptions, {"port": 0})
    bound = bind(options)
    port = bound.getsockname()[1]
    assert address_of(bound, ConnectionOptions()) == f"http://127.0.0.1:{port}"
    assert address_of(bound, ConnectionOptions(ssl_certfile="a.pem")) == f"https://127.0.0.1:{port}"
    release(bound, options)
    assert bound.fileno() == -1
