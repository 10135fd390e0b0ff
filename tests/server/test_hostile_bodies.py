"""Whatever is sent: an answer or a 4xx in the error shape, never a fault of the server, and nothing left behind."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noria.server.protocol.anthropic import CountTokensRequest, MessagesRequest
from noria.server.protocol.chat import ChatCompletionRequest
from noria.server.protocol.completions import CompletionRequest
from noria.server.protocol.responses import ResponsesRequest
from noria.server.protocol.unsupported import REFUSED, REFUSED_UNLESS
from support_events import event_of
from support_server import CHAT, TEXT, AsgiCall, FakeEngine, app_for

MODELS = (ChatCompletionRequest, CompletionRequest, ResponsesRequest, MessagesRequest, CountTokensRequest)
FIELDS = sorted(
    {
        *(name for model in MODELS for name in model.model_fields),
        *REFUSED,
        *REFUSED_UNLESS,
    }
    | {"response_format", "user", "metadata", "stop_sequences", "made_up", ""}
)
RESPONSE = {"model": "wheel", "input": "turn"}
MESSAGE = {"model": "wheel", "max_tokens": 20, "messages": CHAT["messages"]}
BASES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": TEXT,
    "/v1/responses": RESPONSE,
    "/v1/messages": MESSAGE,
    "/v1/messages/count_tokens": MESSAGE,
}
LAST_EVENTS = ("response.completed", "response.incomplete", "message_stop")

NUMBERS = st.one_of(
    st.sampled_from([0, -1, 1, 2, 2**31, 2**63, 2**64 - 1, -(2**63), 0.0, -0.0, 1e-320, 1e308, 0.5, 1.0]),
    st.integers(-3, 70),
    st.floats(allow_nan=False, allow_infinity=False),
)
TEXTS = st.one_of(
    st.sampled_from(
        ["", "a", "wheel", "auto", "none", "user", "\x00", "\ufffd", "<|end|>", "🙂", "assistant"]
    ),
    st.text(st.characters(exclude_categories=("Cs",)), max_size=30),
)
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.one_of(TEXTS, st.sampled_from(["type", "text", "role", "0", "5"])), inner, max_size=4
        ),
    ),
    max_leaves=12,
)
PARTS = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "input_text", "output_text", "thinking", "refusal", "image_url"])},
    optional={"text": VALUES, "thinking": VALUES, "refusal": VALUES},
)
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.one_of(st.sampled_from(["system", "user", "assistant", "tool", "developer"]), VALUES)},
        optional={
            "content": st.one_of(TEXTS, st.lists(PARTS, max_size=3), VALUES),
            "name": VALUES,
            "tool_calls": st.one_of(
                VALUES, st.lists(st.fixed_dictionaries({"function": VALUES}), max_size=2)
            ),
            "tool_call_id": VALUES,
            "reasoning": VALUES,
            "type": st.one_of(st.just("message"), VALUES),
        },
    ),
    max_size=4,
)
BODIES = st.one_of(
    VALUES,
    st.builds(
        lambda base, changes, messages: {**base, **messages, **changes},
        st.sampled_from([*BASES.values(), {}]),
        st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=4),
        st.one_of(
            st.just({}),
            st.fixed_dictionaries({"messages": MESSAGES}),
            st.fixed_dictionaries({"input": MESSAGES}),
        ),
    ),
)
PATHS = st.sampled_from(list(BASES))
FUZZ = settings(
    deadline=None,
    max_examples=300,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


@pytest.fixture(scope="module")
def app() -> Iterator[Any]:
    engine = FakeEngine()
    made = app_for(engine)
    made.state.engine = engine
    yield made
    engine.shutdown()


def check(app: Any, path: str, body: bytes) -> None:
    """Post, and hold the answer against what every answer must be."""

    async def scenario() -> AsgiCall:
        call = AsgiCall(app, path, body)
        await call.finished()
        return call

    call = asyncio.run(scenario())
    content = b"".join(call.bodies)
    assert call.status in (200, 400, 404), content
    if call.status == 200:
        check_answer(content)
    else:
        check_refusal(path, call.status, json.loads(content))
    switchboard = app.state.switchboard
    assert (switchboard.gate.num_inside, switchboard.bridge.num_open) == (0, 0)


def check_answer(content: bytes) -> None:
    if content.startswith(b"data: "):
        assert content.endswith(b"data: [DONE]\n\n")
        assert b'"error"' not in content
    elif content.startswith(b"event: "):
        assert event_of(content.decode().split("\n\n")[-2])["type"] in LAST_EVENTS
    else:
        assert json.loads(content).keys() & {"choices", "output", "content", "input_tokens"}


def check_refusal(path: str, status: int, body: Any) -> None:
    error = body["error"]
    if path.startswith("/v1/messages"):
        assert body["type"] == "error"
        assert set(error) == {"type", "message"}
    else:
        assert set(error) == {"message", "type", "param", "code"}
        assert error["code"] == status
    assert 0 < len(error["message"]) <= 2300


@FUZZ
@given(path=PATHS, body=BODIES)
def test_any_json_is_answered_or_refused(app: Any, path: str, body: Any) -> None:
    check(app, path, orjson.dumps(body))


@FUZZ
@given(
    path=PATHS,
    base=st.sampled_from(list(BASES.values())),
    cut=st.integers(0, 60),
    junk=st.binary(max_size=6),
    tail=st.booleans(),
)
def test_any_bytes_are_answered_or_refused(
    app: Any, path: str, base: dict, cut: int, junk: bytes, tail: bool
) -> None:
    whole = json.dumps(base).encode()
    check(app, path, whole[:cut] + junk + (whole[cut:] if tail else b""))


@pytest.mark.parametrize("path", BASES)
@pytest.mark.parametrize("depth", [50, 500, 1000])
def test_deep_nesting_in_any_field_is_answered_or_refused(app: Any, path: str, depth: int) -> None:
    base = BASES[path]
    for opening, closing in (("[", "]"), ('{"a":', "}")):
        deep = opening * depth + "1" + closing * depth
        content = f'[{{"role": "assistant", "content": {deep}}}]'
        calls = f'[{{"role": "assistant", "content": "a", "tool_calls": {deep}}}]'
        nested = [("messages", content), ("messages", calls), ("input", content)]
        for name, value in [*((field, deep) for field in FIELDS), *nested]:
            rest = {key: value for key, value in base.items() if key != name}
            check(app, path, f"{json.dumps(rest)[:-1]}, {json.dumps(name)}: {value}}}".encode())


def test_arguments_of_a_tool_call_may_be_any_text(app: Any) -> None:
    for arguments in ("", "{", "[" * 100_000, '{"a":' * 50_000, "null", "1", '{"a": "\\ud800"}'):
        call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
        messages = [{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": [call]}]
        check(app, "/v1/chat/completions", json.dumps({"messages": messages}).encode())


def test_a_great_many_bad_items_cost_one_error(app: Any) -> None:
    count = 200_000
    for path, field, items in (
        ("/v1/completions", "prompt", [[]] * count),
        ("/v1/completions", "prompt", [None] * count),
        ("/v1/completions", "stop", [5] * count),
        ("/v1/completions", "stop_token_ids", ["a"] * count),
        ("/v1/completions", "logit_bias", {str(i): "a" for i in range(count)}),
        ("/v1/chat/completions", "messages", [5] * count),
        ("/v1/completions", "made_up", [{}] * count),
        ("/v1/responses", "input", [5] * count),
        ("/v1/responses", "include", [5] * count),
        ("/v1/responses", "tools", [5] * count),
        ("/v1/messages", "messages", [5] * count),
        ("/v1/messages", "system", [5] * count),
        ("/v1/messages", "stop_sequences", [5] * count),
    ):
        check(app, path, orjson.dumps({**BASES[path], field: items}))
