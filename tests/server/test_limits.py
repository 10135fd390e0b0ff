"""Bounds that a user sets hold, and what is above them is refused with the number."""

from __future__ import annotations

from typing import Any

import pytest

from noria.config.flags import given_by_environment
from noria.config.limits import LimitOptions
from noria.config.parse import build
from noria.server.limits import Limits
from support_server import FakeEngine, serving


def test_without_options_the_limits_are_the_servers_own() -> None:
    assert Limits.of(LimitOptions()) == Limits()


@pytest.mark.parametrize(
    ("option", "fits", "exceeds", "param"),
    [
        ({"max_stop_strings": 2}, {"stop": ["a", "b"]}, {"stop": ["a", "b", "c"]}, "stop"),
        ({"max_n": 4}, {"n": 4}, {"n": 5}, "n"),
        ({"max_n": 4}, {"prompt": ["a", "b"], "n": 2}, {"prompt": ["a", "b"], "n": 3}, "n"),
        ({"max_prompts": 2}, {"prompt": ["a", "b"]}, {"prompt": ["a", "b", "c"]}, "prompt"),
    ],
)
def test_a_request_above_a_limit_is_refused_by_name(
    option: dict[str, Any], fits: dict[str, Any], exceeds: dict[str, Any], param: str
) -> None:
    with serving(FakeEngine(), **option) as server:
        assert server.complete(**fits).status_code == 200
        refused = server.complete(**exceeds)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, param)
        [most] = option.values()
        assert str(most) in refused.json()["error"]["message"]


def test_bodies_and_headers_are_as_big_as_they_may_be() -> None:
    options = {"max_request_body_size": "2KiB", "max_header_count": 20, "max_header_size": "4KiB"}
    with serving(FakeEngine(), **options) as server:
        assert server.complete(metadata="a" * 1000).status_code == 200
        assert server.complete(metadata="a" * 3000).status_code == 413
        few = {f"x-{i}": "a" for i in range(10)}
        assert server.get("/health", headers=few).status_code == 200
        many = {f"x-{i}": "a" for i in range(30)}
        assert server.get("/health", headers=many).status_code == 400
        assert server.get("/health", headers={"x-long": "a" * 5000}).status_code == 400


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("VLLM_HTTP_MAX_REQUEST_BODY_SIZE", "max_request_body_size"),
        ("VLLM_MAX_STOP_STRINGS", "max_stop_strings"),
        ("VLLM_MAX_N_SEQUENCES", "max_n"),
        ("VLLM_HTTP_TIMEOUT_KEEP_ALIVE", "http_timeout_keep_alive"),
    ],
)
def test_the_environment_names_that_operators_know_stand_in(variable: str, name: str) -> None:
    own = f"NORIA_{name.upper()}"
    read = lambda **environ: getattr(  # noqa: E731
        build(LimitOptions, given_by_environment(LimitOptions, environ)), name
    )
    assert read(**{variable: "2048"}) == 2048
    assert read(**{variable: "2048", own: "4096"}) == 4096
