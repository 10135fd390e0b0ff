"""What chat completions honour, the other chat protocols honour too or refuse: nothing is dropped in silence."""

from __future__ import annotations

from typing import Any

import pytest

from noria.server.protocol.chat import ChatCompletionRequest
from support_server import FakeEngine, Server, served_model, serving, tokenizer

RESPONSE = {"model": "wheel", "input": "turn"}
MESSAGE = {"model": "wheel", "max_tokens": 20, "messages": [{"role": "user", "content": "turn"}]}
BASES: dict[str, dict[str, Any]] = {"/v1/responses": RESPONSE, "/v1/messages": MESSAGE}
BOTH = pytest.mark.parametrize("path", BASES)

# The id of a reply is a matter of X-Request-Id; usage is told in every stream.
OTHERWISE = {"request_id", "stream_options"}
# Values that ask for something, by the kind of the field.
ASKING: dict[str, Any] = {
    "messages": [{"role": "user", "content": "a"}],
    "stop": ["x"],
    "response_format": {"type": "json_object"},
    "n": 2,
    "continue_final_message": True,
    "add_generation_prompt": False,
    "chat_template": "{{ messages }}",
    "documents": [{"text": "a"}],
    "include_reasoning": False,
    "parallel_tool_calls": False,
    "reasoning_effort": "low",
    "echo": True,
    "add_special_tokens": True,
    "return_prompt_text": True,
    "return_token_ids": True,
    "return_tokens_as_token_ids": True,
    "logprobs": True,
    "top_logprobs": 1,
    "prompt_logprobs": 1,
    "logprob_token_ids": [5],
    "max_tokens": 5,
    "max_completion_tokens": 5,
}


@BOTH
def test_every_field_that_chat_honours_is_known_here_too(server: Server, path: str) -> None:
    document = server.get("/openapi.json").json()
    [reference] = document["paths"][path]["post"]["requestBody"]["content"]["application/json"][
        "schema"
    ].values()
    declared = document["components"]["schemas"][reference.rpartition("/")[2]]["properties"]
    for name in ChatCompletionRequest.model_fields.keys() - declared.keys() - OTHERWISE:
        answer = server.client.post(path, json={**BASES[path], name: ASKING[name]})
        assert answer.status_code == 400, name
        assert name in answer.json()["error"]["message"]


@BOTH
def test_the_operators_template_variables_hold_in_every_protocol(path: str) -> None:
    template = "{{ style }}:{% for m in messages %}{{ m.content }}{% endfor %}"
    model = served_model(tokenizer=tokenizer(template))
    with serving(FakeEngine(), model=model, default_chat_template_kwargs={"style": "dry"}) as server:
        assert server.client.post(path, json=BASES[path]).status_code == 200
        prompt = server.engine.submitted[-1].prompt_token_ids
        assert tokenizer().decode(prompt) == "dry:turn"


@BOTH
def test_a_prompt_is_cut_where_a_request_wants_it(server: Server, path: str) -> None:
    server.client.post(path, json=BASES[path])
    whole = server.engine.submitted[-1].prompt_token_ids
    server.client.post(path, json={**BASES[path], "truncate_prompt_tokens": 5})
    assert server.engine.submitted[-1].prompt_token_ids == whole[-5:]


@BOTH
def test_chunks_are_as_big_as_a_request_wants_them(server: Server, path: str) -> None:
    def num_deltas(**fields: Any) -> int:
        return server.client.post(path, json={**BASES[path], "stream": True, **fields}).text.count("delta\n")

    assert num_deltas(stream_interval=4) < num_deltas()
    refused = server.client.post(path, json={**BASES[path], "stream_interval": 0})
    assert refused.status_code == 400
    assert "stream_interval" in refused.json()["error"]["message"]
