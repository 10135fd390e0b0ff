"""Keys from the command line and from a file; the limits that come with them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from noria.config.errors import ConfigError, OverloadError, Refusal
from noria.config.tenant import ANYBODY, Tenant
from noria.server.keys import KeyRing
from noria.server.limits import Limits
from support_server import TEXT, FakeEngine, Server, app_for, serving

ALICE = Tenant("alice", weight=3, max_concurrent=2, tokens_per_minute=600)
GUARDED = [
    "/v1/models",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
    "/docs",
    "/openapi.json",
    "/nowhere",
]
OPEN = ["/health", "/ready", "/ping", "/version", "/metrics"]


def _write(path: Path, content: object) -> None:
    path.write_text(content if isinstance(content, str) else json.dumps(content))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "keys.json"
    limits = {"weight": 3, "max_concurrent": 2, "tokens_per_minute": 600}
    _write(path, {"alice": {"key": "sk-alice", **limits}, "bob": "sk-bob"})
    return path


@pytest.fixture
def guarded(file: Path) -> Iterator[Server]:
    with serving(FakeEngine(), api_key=("first", "second"), api_keys_file=str(file)) as server:
        yield server


def _complete(server: Server, key: str | None) -> int:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    return server.client.post("/v1/completions", json=TEXT, headers=headers).status_code


def test_a_name_in_the_file_that_a_key_of_the_command_line_has_is_refused(file: Path) -> None:
    _write(file, {"key-2": "sk-intruder"})
    assert KeyRing(("first",), str(file)).holder(b"sk-intruder") == Tenant("key-2")
    with pytest.raises(
        ConfigError, match=r"has the name 'key-2', which is that of a key given with --api-key"
    ):
        KeyRing(("first", "second"), str(file))


def test_every_route_but_the_probes_wants_a_key(guarded: Server) -> None:
    assert [guarded.get(path).status_code for path in GUARDED] == [401] * len(GUARDED)
    assert [guarded.get(path).status_code for path in OPEN] == [200] * len(OPEN)


def test_who_holds_a_key_is_told_to_the_engine_and_the_key_is_not(guarded: Server) -> None:
    holders = {
        "sk-alice": ALICE,
        "sk-bob": Tenant("bob"),
        "first": Tenant("key-1"),
        "second": Tenant("key-2"),
    }
    for key, tenant in holders.items():
        assert _complete(guarded, key) == 200
        assert guarded.engine.submitted[-1].tenant == tenant
    assert not any(key in repr(guarded.engine.submitted) for key in holders)


@pytest.mark.parametrize("key", [None, "sk-", "sk-alice2", "SK-ALICE", "alice", "sk-alice sk-bob", "ä"])
def test_a_wrong_key_is_refused(guarded: Server, key: str | None) -> None:
    headers = {} if key is None else {"Authorization": f"Bearer {key}".encode()}
    answer = guarded.client.post("/v1/completions", json=TEXT, headers=headers)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"


def test_without_keys_everybody_is_nobody_in_particular() -> None:
    with serving(FakeEngine()) as server:
        assert _complete(server, "whatever") == 200
        assert server.engine.submitted[-1].tenant == ANYBODY


def test_keys_come_and_go_with_the_file(file: Path) -> None:
    ring = KeyRing((), str(file))
    _write(file, {"carol": "sk-carol"})
    ring.refresh()
    assert ring.holder(b"sk-carol") == Tenant("carol")
    assert ring.holder(b"sk-alice") is None


def test_a_server_follows_its_file(file: Path) -> None:
    limits = Limits(keys_look_every_s=0.01)
    with serving(FakeEngine(), limits, api_key=("first",), api_keys_file=str(file)) as server:
        assert _complete(server, "sk-carol") == 401
        _write(file, {"carol": "sk-carol"})
        deadline_s = time.monotonic() + 60
        while _complete(server, "sk-carol") == 401:
            assert time.monotonic() < deadline_s, "the new key is not known"
        assert _complete(server, "sk-bob") == 401
        assert _complete(server, "first") == 200


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"a": ""}', '{"a": {"key": "k", "wait": 1}}', None])
def test_a_bad_new_file_changes_nothing_and_is_logged_without_its_keys(
    file: Path, content: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    ring = KeyRing((), str(file))
    if content is None:
        os.remove(file)
    else:
        _write(file, content)
    ring.refresh()
    assert ring.holder(b"sk-alice") == ALICE
    assert "the API keys stay as they were" in caplog.text
    caplog.clear()
    ring.refresh()
    assert caplog.text == ""  # told once
    assert "sk-" not in caplog.text


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"a": sk-secret}', "not valid JSON in line 1"),
        ('{"a": {"weight": 2}}', "under 'a': the key must be text"),
        ('{"a": "sk secret"}', "without spaces"),
        ('{"a": {"key": "sk-secret", "weight": 0}}', "weight must be a whole number from 1"),
        ('{"a": {"key": "sk-secret", "max_concurrent": true}}', "max_concurrent must be a whole number"),
        ('{"a": {"key": "sk-secret", "tokens_per_minute": 1.5}}', "tokens_per_minute must be"),
        ('{"a": {"key": "sk-secret", "limit": 1}}', "unknown limit; there are key, weight"),
        ('{"a": "sk-secret", "b": "sk-secret"}', "gives 'a' and 'b' the same key"),
        ("{}", "at least one name"),
    ],
)
def test_a_bad_file_is_refused_at_start_without_its_keys(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "keys.json"
    _write(path, content)
    with pytest.raises(ConfigError, match=words) as caught:
        app_for(FakeEngine(), api_keys_file=str(path))
    assert "secret" not in str(caught.value)


def test_a_file_may_be_yaml(tmp_path: Path) -> None:
    path = tmp_path / "keys.yaml"
    _write(
        path,
        "alice:\n  key: sk-alice\n  weight: 3\n  max_concurrent: 2\n  tokens_per_minute: 600\nbob: sk-bob\n",
    )
    ring = KeyRing((), str(path))
    assert (ring.holder(b"sk-alice"), ring.holder(b"sk-bob")) == (ALICE, Tenant("bob"))


def test_bad_yaml_is_told_by_its_line_alone(tmp_path: Path) -> None:
    path = tmp_path / "keys.yaml"
    _write(path, "alice: sk-alice\nbob: [sk-secret\ncarol: x\n")
    with pytest.raises(ConfigError, match="not valid YAML in line 3") as caught:
        KeyRing((), str(path))
    assert "sk-" not in str(caught.value)


REFUSALS = {
    Refusal.QUEUED_REQUESTS: (503, "ServiceUnavailableError"),
    Refusal.QUEUED_TOKENS: (503, "ServiceUnavailableError"),
    Refusal.DEADLINE: (503, "ServiceUnavailableError"),
    Refusal.KEY_REQUESTS: (429, "RateLimitError"),
    Refusal.KEY_TOKENS: (429, "RateLimitError"),
}


@pytest.mark.parametrize("reason", Refusal)
def test_a_refusal_is_told_with_its_status_and_the_time_to_come_back_after_and_counted(
    reason: Refusal,
) -> None:
    with serving(FakeEngine()) as server:
        server.engine.submit_error = OverloadError("Not now.", reason, 17)
        answer = server.complete()
        error = answer.json()["error"]
        assert (answer.status_code, error["type"]) == REFUSALS[reason]
        assert (answer.headers["retry-after"], error["message"]) == ("17", "Not now.")
        counted = f'vllm:admission_rejections_total{{model_name="wheel",reason="{reason.value}"}} 1.0'
        assert counted in server.get("/metrics").text
