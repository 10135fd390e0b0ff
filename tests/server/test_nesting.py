"""How deep a body may be nested, however it is written."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noria.server.protocol.body import is_deeper
from support_server import FakeEngine, serving

JSON = st.recursive(
    st.none() | st.integers() | st.text(alphabet='[]{}"\\ab'),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text('[]{}"\\a'), inner, max_size=4),
    max_leaves=40,
)


def depth_of(value: object) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(depth_of, inner), default=0)


@given(JSON, st.integers(1, 8))
def test_depth_is_that_of_what_the_text_means(value: object, most: int) -> None:
    assert is_deeper(json.dumps(value).encode(), most) == (depth_of(value) > most)


@pytest.mark.parametrize("text", ["[" * 10**6, '{"a":' * 10**6, "[" * 10**6 + "]" * 10**6, "[{" * 10**5])
def test_endless_nesting_is_seen_at_once(text: str) -> None:
    assert is_deeper(text.encode(), 128)


@pytest.mark.parametrize("text", ["[]," * 10**6, '["[[[[", "]"],' * 10**5, '"' + "[" * 10**6 + '",'])
def test_a_great_many_brackets_side_by_side_are_not_deep(text: str) -> None:
    assert not is_deeper(b"[" + text.encode() + b"1]", 8)


def test_the_server_refuses_what_is_deeper_than_it_was_told_to_read() -> None:
    with serving(FakeEngine(), max_json_depth=10) as server:
        for depth, status in ((8, 200), (9, 400), (5000, 400)):
            nested = "[" * depth + "]" * depth
            body = f'{{"prompt": "a", "metadata": {{"x": {nested}}}}}'
            headers = {"Content-Type": "application/json"}
            answer = server.client.post("/v1/completions", content=body, headers=headers)
            assert answer.status_code == status
            if status == 400:
                assert "at most 10 objects and lists" in answer.json()["error"]["message"]
