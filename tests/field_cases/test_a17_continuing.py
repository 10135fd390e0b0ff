"""A17: continuing a half-written message of the assistant's opened a new turn, repeated it, or ignored `echo`.

The kind: rendered prompts are exact, by their ids, and flags that contradict each other are refused.
"""

from __future__ import annotations

from typing import Any

import pytest

from support_http import Api, joined

HALVES = ("1, 2, 3,", "1, 2, 3, ", "1, 2, 3,\n", "", "🙂", "1, 2 🙂")
END_MARK = "<|im_end|>"


def chat_of(half: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": "Count to ten"}, {"role": "assistant", "content": half}]


def ask(api: Api, half: str, **fields: Any) -> Any:
    body = {"model": "test", "temperature": 0, "max_tokens": 12, "continue_final_message": True, **fields}
    return api.post("/v1/chat/completions", messages=chat_of(half), **body)


@pytest.mark.parametrize("half", HALVES)
def test_the_prompt_ends_exactly_with_the_given_text(smollm2: Api, half: str) -> None:
    opened = smollm2.post("/tokenize", messages=chat_of(half)[:1], add_generation_prompt=True).json()
    told = smollm2.post("/tokenize", messages=chat_of(half), continue_final_message=True).json()
    assert smollm2.text(told["tokens"]) == smollm2.text(opened["tokens"]) + half
    answer = ask(smollm2, half, return_token_ids=True).json()
    assert answer["prompt_token_ids"] == told["tokens"]
    assert answer["usage"]["prompt_tokens"] == told["count"]


@pytest.mark.parametrize("half", HALVES)
def test_only_new_text_comes_back_unless_the_given_part_is_asked_for(smollm2: Api, half: str) -> None:
    new = ask(smollm2, half).json()["choices"][0]["message"]["content"]
    prompt = smollm2.post("/tokenize", messages=chat_of(half), continue_final_message=True).json()["tokens"]
    assert new == smollm2.ask("text", prompt, max_tokens=12)["choices"][0]["text"]
    assert END_MARK not in new
    echoed = ask(smollm2, half, echo=True).json()["choices"][0]["message"]["content"]
    assert echoed == half + new
    body = {"max_tokens": 12, "continue_final_message": True, "messages": chat_of(half)}
    assert joined(smollm2.stream("chat", None, **body)) == new
    assert joined(smollm2.stream("chat", None, echo=True, **body)) == half + new


def test_a_message_cannot_be_continued_and_followed_at_once(smollm2: Api) -> None:
    answer = ask(smollm2, "1, 2, 3,", add_generation_prompt=True)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "continue_final_message"
    assert ask(smollm2, "1, 2, 3,", add_generation_prompt=False).status_code == 200
