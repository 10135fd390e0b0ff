"""Tokenizing and detokenizing over HTTP: the ids that a prompt would be made from, and back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support_server import CHAT_TEMPLATE, FakeEngine, Server, serving, tokenizer

TEXT = "The wheel turns — ünter Wasser"


@pytest.fixture(scope="module")
def info_server() -> Iterator[Server]:
    with serving(FakeEngine(), enable_tokenizer_info_endpoint=True) as server:
        yield server


def test_a_text_becomes_the_ids_that_a_completion_is_made_from(server: Server) -> None:
    answer = server.post("/tokenize", prompt="The water")
    server.complete(prompt="The water")
    expected = list(server.engine.submitted[-1].prompt_token_ids)
    assert answer.json() == {
        "count": len(expected),
        "max_model_len": 64,
        "tokens": expected,
        "token_strs": None,
    }


def test_special_tokens_are_left_out_where_asked(server: Server) -> None:
    plain = server.post("/tokenize", prompt=TEXT, add_special_tokens=False).json()["tokens"]
    assert plain == tokenizer().encode(TEXT, add_special_tokens=False)


def test_tokens_are_told_as_text_where_asked(server: Server) -> None:
    answer = server.post("/tokenize", prompt="The wheel", return_token_strs=True).json()
    assert answer["token_strs"] == [tokenizer().token_text(token_id) for token_id in answer["tokens"]]
    assert "".join(answer["token_strs"]).endswith("The wheel")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"add_generation_prompt": False},
        {"continue_final_message": True},
        {"add_special_tokens": True},
        {"chat_template_kwargs": {"a": 1}},
    ],
)
def test_a_chat_becomes_the_ids_that_its_answer_is_made_from(server: Server, options: dict) -> None:
    messages = [{"role": "user", "content": "turn"}, {"role": "assistant", "content": "the"}]
    answer = server.post("/tokenize", messages=messages, **options).json()
    server.chat(messages=messages, max_tokens=1, **options)
    assert answer["tokens"] == list(server.engine.submitted[-1].prompt_token_ids)
    assert answer["count"] == len(answer["tokens"])


def test_text_survives_both_ways(server: Server) -> None:
    tokens = server.post("/tokenize", prompt=TEXT, add_special_tokens=False).json()["tokens"]
    assert server.post("/detokenize", tokens=tokens).json() == {"prompt": TEXT}
    assert server.post("/detokenize", tokens=[]).json() == {"prompt": ""}
    assert server.post("/detokenize", model="wheel", tokens=[0]).json() == {
        "prompt": tokenizer().decode([0], skip_special_tokens=False)
    }


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": "a", "messages": [{"role": "user", "content": "a"}]}, "prompt"),
        ("/tokenize", {"prompt": 5}, "prompt"),
        ("/tokenize", {"prompt": ["a"]}, "prompt"),
        ("/tokenize", {"messages": []}, "messages"),
        ("/tokenize", {"messages": [{"role": "nobody", "content": "a"}]}, "messages"),
        ("/tokenize", {"prompt": "a", "add_special_tokens": "no"}, "add_special_tokens"),
        ("/detokenize", {}, "tokens"),
        ("/detokenize", {"tokens": "5"}, "tokens"),
        ("/detokenize", {"tokens": ["5"]}, "tokens"),
        ("/detokenize", {"tokens": [True]}, "tokens"),
        ("/detokenize", {"tokens": [0.5]}, "tokens"),
        ("/detokenize", {"tokens": [-1]}, "tokens"),
        ("/detokenize", {"tokens": [500]}, "tokens"),
        ("/detokenize", {"tokens": [2**70]}, "tokens"),
    ],
)
def test_a_bad_body_is_refused_by_name(server: Server, path: str, body: dict, param: str) -> None:
    answer = server.post(path, **body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


@pytest.mark.parametrize("path", ["/tokenize", "/detokenize"])
def test_a_model_that_is_not_served_is_unknown_here_too(server: Server, path: str) -> None:
    answer = server.post(path, model="another", prompt="a", tokens=[5])
    assert (answer.status_code, answer.json()["error"]["type"]) == (404, "NotFoundError")


def test_the_tokenizer_tells_of_itself_where_it_may(server: Server, info_server: Server) -> None:
    assert server.get("/tokenizer_info").status_code == 404
    info = info_server.get("/tokenizer_info").json()
    assert info == {
        "bos_token": tokenizer().token_text(1),
        "eos_token": tokenizer().token_text(0),
        "chat_template": CHAT_TEMPLATE,
        "add_bos_token": tokenizer().encode("a")[0] == 1,
        "model_max_length": 64,
        "vocab_size": tokenizer().vocab_size,
    }
