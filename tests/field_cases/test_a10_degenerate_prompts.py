"""A10: an empty prompt took the engine down, not just its own request.

The kind: degenerate input stops before the engine, in the standard error shape, and neighbours never notice.
"""

from __future__ import annotations

import json
from typing import Any

from support_http import Api

PROMPTS: tuple[Any, ...] = ("", [""], [], [[]], [[], []], ["a", ""], [[5], []], None, {}, 5, [None])
CHATS: tuple[Any, ...] = (
    [],
    None,
    {},
    [{}],
    [{"role": "user"}],
    [{"role": "user", "content": None}],
    [{"role": "user", "content": [{}]}],
)


def test_degenerate_prompts_beside_a_stream_are_refused_and_the_stream_is_its_solo_run(tiny: Api) -> None:
    fields = {"max_tokens": 400, "ignore_eos": True, "return_token_ids": True}
    solo = tiny.ask("text", "the water wheel", **fields)["choices"][0]["token_ids"]
    with tiny.streaming("text", "the water wheel", **fields) as lines:
        told = [next(lines)]
        for prompt in PROMPTS:
            answer = tiny.post("/v1/completions", model="test", prompt=prompt)
            check_refusal(answer, "prompt")
        for messages in CHATS:
            check_refusal(tiny.post("/v1/chat/completions", model="test", messages=messages), "messages")
        told += lines
    assert told.pop() == "data: [DONE]"
    chunks = [json.loads(line.removeprefix("data: ")) for line in told]
    ids = [token_id for chunk in chunks for token_id in chunk["choices"][0]["token_ids"]]
    assert ids == solo
    tiny.serving.check_clean()


def test_an_empty_message_is_a_message(tiny: Api) -> None:
    for content in ("", []):
        messages = [{"role": "user", "content": content}]
        answer = tiny.post("/v1/chat/completions", model="test", messages=messages, max_tokens=2)
        assert answer.status_code == 200
        assert answer.json()["usage"]["prompt_tokens"] > 0


def check_refusal(answer: Any, param: str) -> None:
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["type"], error["param"], error["code"]) == ("BadRequestError", param, 400)
