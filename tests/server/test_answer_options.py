"""What a server is started with decides what requests get that do not say otherwise."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from noria.config.errors import ConfigError
from noria.config.parse import from_mapping
from noria.config.serving import ServerOptions
from noria.core.outputs import Delta
from noria.engine.messages import GenerateRequest
from support_server import CHAT, FakeEngine, Server, app_for, chunks, says, served_model, serving

TURNS = [{"role": "user", "content": "turn"}]


def prompt_of(server: Server) -> str:
    ids = server.engine.submitted[-1].prompt_token_ids
    return server.post("/detokenize", tokens=list(ids)).json()["prompt"]


def test_a_completion_without_max_tokens_takes_what_the_context_leaves_of_sixteen(server: Server) -> None:
    for num_prompt, expected in ((1, 16), (48, 16), (60, 4), (63, 1)):
        assert server.complete(prompt=[5] * num_prompt).status_code == 200
        assert server.engine.submitted[-1].params.max_tokens == expected
    assert server.complete(prompt=[5] * 64).status_code == 400
    assert server.complete(prompt=[[5] * 60, [5]]).status_code == 200
    assert [request.params.max_tokens for request in server.engine.submitted[-2:]] == [4, 16]


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        ({"truncate_prompt_tokens": 3}, [8, 9, 10]),
        ({"truncate_prompt_tokens": 3, "truncation_side": "left"}, [8, 9, 10]),
        ({"truncate_prompt_tokens": 3, "truncation_side": "right"}, [5, 6, 7]),
        ({"truncate_prompt_tokens": 6}, [5, 6, 7, 8, 9, 10]),
        ({"truncate_prompt_tokens": 99}, [5, 6, 7, 8, 9, 10]),
        ({"truncate_prompt_tokens": -1}, [5, 6, 7, 8, 9, 10]),
        ({"truncate_prompt_tokens": -1, "max_tokens": 62}, [9, 10]),
        ({"truncate_prompt_tokens": None}, [5, 6, 7, 8, 9, 10]),
    ],
)
def test_a_prompt_is_cut_at_the_side_that_was_named(
    server: Server, fields: dict[str, Any], kept: list[int]
) -> None:
    answer = server.complete(prompt=[5, 6, 7, 8, 9, 10], echo=True, **fields)
    assert list(server.engine.submitted[-1].prompt_token_ids) == kept
    assert answer.json()["usage"]["prompt_tokens"] == len(kept)
    assert answer.json()["choices"][0]["text"].startswith(
        server.post("/detokenize", tokens=kept).json()["prompt"]
    )


def test_a_chat_too_long_for_the_context_may_ask_to_be_cut(server: Server) -> None:
    messages = [{"role": "user", "content": "a " * 99}]
    assert server.chat(messages=messages).status_code == 400
    assert server.chat(messages=messages, truncate_prompt_tokens=-1, max_tokens=4).status_code == 200
    assert len(server.engine.submitted[-1].prompt_token_ids) == 60


def test_the_header_for_priority_counts_before_the_field(server: Server) -> None:
    post = server.client.post
    post("/v1/chat/completions", json={**CHAT, "priority": 3}, headers={"X-Vllm-Priority": "-7"})
    assert server.engine.submitted[-1].priority == -7
    for bad in ("fast", "1.5", "9" * 19):
        answer = post("/v1/chat/completions", json=CHAT, headers={"X-Vllm-Priority": bad})
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] in ("X-Vllm-Priority", "priority")
    assert server.client.get("/v1/models", headers={"X-Vllm-Priority": "fast"}).status_code == 200


def test_the_template_of_a_request_runs_only_where_requests_are_trusted(server: Server) -> None:
    shout = "{{ messages[0].content | upper }}!"
    refused = server.chat(chat_template=shout)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "chat_template")
    assert "--trust-request-chat-template" in refused.json()["error"]["message"]
    assert server.chat(chat_template="default").status_code == 200
    assert server.post("/tokenize", messages=TURNS, chat_template=shout).status_code == 400
    with serving(FakeEngine(), trust_request_chat_template=True) as trusting:
        assert trusting.chat(chat_template=shout).status_code == 200
        assert prompt_of(trusting) == "TURN!"
        broken = trusting.chat(chat_template="{% for %}")
        assert (broken.status_code, broken.json()["error"]["param"]) == (400, "chat_template")


def test_documents_and_variables_reach_the_template() -> None:
    template = "{{ documents | length if documents else 0 }} {{ mood }} {{ messages[0].content }}"
    options = {"trust_request_chat_template": True, "default_chat_template_kwargs": {"mood": "calm"}}
    with serving(FakeEngine(), **options) as server:
        server.chat(chat_template=template, documents=[{"text": "a"}, {"text": "b"}])
        assert prompt_of(server) == "2 calm turn"
        server.chat(chat_template=template, chat_template_kwargs={"mood": "wild"})
        assert prompt_of(server) == "0 wild turn"
        bad = server.chat(documents=["a"])
        assert (bad.status_code, bad.json()["error"]["param"]) == (400, "documents")


def test_stated_generation_values_replace_the_models_and_yield_to_the_requests() -> None:
    model = served_model(generation_defaults={"temperature": 0.6, "top_p": 0.9})
    with serving(FakeEngine(), model=model, override_generation_config='{"temperature": 0.1}') as server:
        server.complete()
        params = server.engine.submitted[-1].params
        assert (params.temperature, params.top_p) == (0.1, 0.9)
        server.complete(temperature=0.4)
        assert server.engine.submitted[-1].params.temperature == 0.4


@pytest.mark.parametrize("stated", [{"warmth": 1}, {"temperature": -1}, {"top_k": "many"}])
def test_generation_values_that_mean_nothing_keep_the_server_from_starting(stated: dict[str, Any]) -> None:
    engine = FakeEngine()
    with pytest.raises(ConfigError, match="override_generation_config"):
        app_for(engine, override_generation_config=stated)
    engine.shutdown()


@pytest.mark.parametrize("text", ["[1]", "temperature", '"a"', "5"])
def test_what_is_no_json_object_is_refused_as_one(text: str) -> None:
    with pytest.raises(ConfigError, match="override_generation_config must be a JSON object"):
        from_mapping(ServerOptions, {"override_generation_config": text})


def test_usage_ends_every_stream_where_that_is_forced() -> None:
    with serving(FakeEngine(), enable_force_include_usage=True) as server:
        for answer in (server.chat(stream=True), server.complete(stream=True)):
            *others, last = chunks(answer)
            assert last["choices"] == []
            assert last["usage"]["total_tokens"] > 0
            assert not any("usage" in chunk for chunk in others)


def test_tokens_are_named_by_id_where_that_is_the_rule_unless_a_request_says_no() -> None:
    with serving(FakeEngine(), return_tokens_as_token_ids=True) as server:
        named = server.complete(logprobs=1).json()["choices"][0]["logprobs"]["tokens"]
        assert all(name.startswith("token_id:") for name in named)
        plain = server.complete(logprobs=1, return_tokens_as_token_ids=False).json()
        assert not any(name.startswith("token_id:") for name in plain["choices"][0]["logprobs"]["tokens"])


@pytest.mark.parametrize(
    ("option", "field", "sizes"), [(3, None, [1, 3, 3, 2]), (1, 4, [1, 4, 4]), (9, 1, [1] * 9)]
)
def test_a_chunk_gathers_as_many_tokens_as_are_asked_for(
    option: int, field: int | None, sizes: list[int]
) -> None:
    engine = FakeEngine(says("wheel ", ends=False))
    fields = {"max_tokens": 9, "return_token_ids": True, "stream_interval": field, "logprobs": True}
    with serving(engine, stream_interval=option) as server:
        whole = server.chat(**fields, n=2).json()
        streamed = chunks(server.chat(**fields, n=2, stream=True))
    for choice in whole["choices"]:
        mine = [item for chunk in streamed for item in chunk["choices"] if item["index"] == choice["index"]]
        tokens = [item["token_ids"] for item in mine if item.get("token_ids")]
        assert [len(ids) for ids in tokens] == sizes
        assert [token_id for ids in tokens for token_id in ids] == choice["token_ids"]
        assert "".join(item["delta"].get("content", "") for item in mine) == choice["message"]["content"]
        logprobs = [entry for item in mine for entry in (item["logprobs"] or {"content": []})["content"]]
        assert logprobs == choice["logprobs"]["content"]
        assert mine[-1]["finish_reason"] == "length"


def test_tokens_that_wait_for_others_are_told_when_their_stream_fails() -> None:
    def failing(request: GenerateRequest) -> list[Delta]:
        return [
            *says("wheel ", ends=False)(request)[:3],
            Delta(request.request_id, error="broken", finish="error"),
        ]

    with serving(FakeEngine(failing), stream_interval=50) as server:
        text = server.complete(stream=True, max_tokens=9, return_token_ids=True).text
    assert text.index('"token_ids"') < text.rindex('"token_ids"') < text.index('"error"')


@pytest.mark.parametrize("interval", [0, -1])
def test_an_interval_below_one_is_refused(server: Server, interval: int) -> None:
    answer = server.chat(stream=True, stream_interval=interval)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "stream_interval")


def test_prompts_are_logged_only_where_asked(caplog: pytest.LogCaptureFixture) -> None:
    secret = "the secret of the wheel"
    with caplog.at_level(logging.DEBUG), serving(FakeEngine()) as server:
        server.complete(prompt=secret)
        server.complete(prompt=secret, max_tokens=-1)
        server.chat(messages=[{"role": "user", "content": secret}])
    assert "secret" not in caplog.text
    options = {"enable_log_requests": True, "max_log_len": 14, "uvicorn_log_level": "info"}
    with caplog.at_level(logging.INFO), serving(FakeEngine(), **options) as server:
        server.complete(prompt=secret, temperature=0.25)
    [line] = [record.getMessage() for record in caplog.records if "secret" in record.getMessage()]
    assert "temperature=0.25" in line
    assert "=" not in line.replace("max_tokens=", "").replace(
        "temperature=0.25", ""
    )  # nothing nobody asked for
    assert "the secret of" in line
    assert "wheel" not in line
