"""docs/api.md tells of every route and every field that the server knows."""

from __future__ import annotations

import re
from pathlib import Path

from noria.server.protocol.chat import ChatCompletionRequest
from noria.server.protocol.completions import CompletionRequest
from noria.server.protocol.unsupported import REFUSED, REFUSED_UNLESS
from support_server import FakeEngine, serving

PAGE = (Path(__file__).parents[2] / "docs" / "api.md").read_text(encoding="utf-8")
NAMES = set(re.findall(r"`([^`]+)`", PAGE))


def test_every_route_has_a_line() -> None:
    with serving(FakeEngine(), enable_tokenizer_info_endpoint=True) as server:
        paths = server.get("/openapi.json").json()["paths"]
    routes = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
    assert routes - NAMES == set()


def test_every_field_that_is_honoured_or_refused_is_named() -> None:
    honoured = ChatCompletionRequest.model_fields.keys() | CompletionRequest.model_fields.keys()
    words = {word for name in NAMES for word in re.split(r"[:,] ?", name)}
    assert (honoured | REFUSED | set(REFUSED_UNLESS)) - words == set()
