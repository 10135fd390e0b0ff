"""A15: a second start token landed before the template's own, and answers quietly worsened.

The kind: one place decides on special tokens for chats, completions, tokenizing and scoring, and what it decided can
be seen.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support_http import Api
from support_models import CHAT_TEMPLATE, SPECIAL_TOKENS, write_checkpoint
from support_serving import serving

START = SPECIAL_TOKENS[0]
START_ID = 0
MESSAGES = [{"role": "user", "content": "Count from one to ten."}, {"role": "assistant", "content": "1, 2"}]


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Api, Any]]:
    """A model whose tokenizer puts the start token before a text, and whose template writes it too; and the same
    tokenizer in transformers.
    """
    from transformers import AutoTokenizer

    directory: Path = tmp_path_factory.mktemp("started")
    write_checkpoint(directory, "llama")
    file = directory / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    tokenizer["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": START, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [],
        "special_tokens": {START: {"id": START, "ids": [START_ID], "tokens": [START]}},
    }
    file.write_text(json.dumps(tokenizer))
    settings = json.loads((directory / "tokenizer_config.json").read_text())
    settings["chat_template"] = "{{ bos_token }}" + CHAT_TEMPLATE
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    with serving(model=directory, max_model_len=512, num_gpu_blocks_override=64) as running:
        yield Api(running), AutoTokenizer.from_pretrained(directory)


@pytest.mark.parametrize("messages", [MESSAGES[:1], MESSAGES])
def test_a_chat_has_the_one_start_token_of_its_template(started: tuple[Api, Any], messages: list) -> None:
    api, tokenizer = started
    expected = tokenizer.apply_chat_template(
        messages, tokenize=True, add_generation_prompt=True, return_dict=False
    )
    assert (expected[0], expected.count(START_ID)) == (START_ID, 1)
    assert api.post("/tokenize", messages=messages).json()["tokens"] == expected
    answer = api.post(
        "/v1/chat/completions", model="test", messages=messages, max_tokens=1, return_token_ids=True
    ).json()
    assert answer["prompt_token_ids"] == expected
    assert answer["usage"]["prompt_tokens"] == len(expected)


def test_a_completion_follows_the_tokenizer_unless_it_says_otherwise(started: tuple[Api, Any]) -> None:
    api, tokenizer = started
    text = tokenizer.apply_chat_template(MESSAGES, tokenize=False, add_generation_prompt=True)
    rendered = api.post("/tokenize", messages=MESSAGES).json()["tokens"]
    for prompt in ("the wheel", text):
        for adds in (None, True, False):
            expected = tokenizer.encode(prompt, add_special_tokens=adds is not False)
            fields = {"add_special_tokens": adds, "return_token_ids": True, "max_tokens": 1}
            answer = api.ask("text", prompt, **fields)
            assert answer["choices"][0]["prompt_token_ids"] == expected
            told = api.post("/tokenize", prompt=prompt, add_special_tokens=adds).json()
            assert told["tokens"] == expected
            assert told["count"] == answer["usage"]["prompt_tokens"]
    # The rendered text is the chat's prompt where no second start token is added.
    assert api.post("/tokenize", prompt=text, add_special_tokens=False).json()["tokens"] == rendered


def test_scoring_counts_the_start_token_as_it_was_given(started: tuple[Api, Any]) -> None:
    api, tokenizer = started
    for adds in (True, False):
        fields = {"add_special_tokens": adds, "echo": True, "logprobs": 0, "max_tokens": 0}
        scored = api.ask("text", "the wheel", **fields)["choices"][0]["logprobs"]
        num_tokens = len(tokenizer.encode("the wheel", add_special_tokens=adds))
        assert len(scored["token_logprobs"]) == num_tokens


def test_a_chat_may_ask_for_a_start_token_of_its_own(started: tuple[Api, Any]) -> None:
    api, _ = started
    plain = api.post("/tokenize", messages=MESSAGES).json()["tokens"]
    asked = api.post("/tokenize", messages=MESSAGES, add_special_tokens=True).json()["tokens"]
    assert asked == [START_ID, *plain]
