from __future__ import annotations

import pytest

from noria.core.outputs import Delta, FinishReason
from noria.engine.messages import GenerateRequest
from support_server import Server, chunks, logprobs_of, says, sse_data, tokenizer

RENDERED = "<|start|>user\nturn<|end|>\n<|start|>assistant\n"


def test_a_whole_answer_has_exactly_the_documented_shape(server: Server) -> None:
    answer = server.chat().json()
    assert answer.pop("id").startswith("chatcmpl-")
    assert isinstance(answer.pop("created"), int)
    num_prompt = len(tokenizer().encode(RENDERED, add_special_tokens=False))
    assert answer == {
        "object": "chat.completion",
        "model": "wheel",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "the wheel turns", "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
                "stop_reason": None,
            }
        ],
        "usage": {
            "prompt_tokens": num_prompt,
            "completion_tokens": 5,
            "total_tokens": num_prompt + 5,
        },
        "prompt_logprobs": None,
        "kv_transfer_params": None,
    }


def test_the_rendered_prompt_is_told_where_it_is_asked_for(server: Server) -> None:
    assert server.chat(return_prompt_text=True).json()["prompt_text"] == RENDERED
    first, *rest = chunks(server.chat(stream=True, return_prompt_text=True))
    assert first["prompt_text"] == RENDERED
    assert not any("prompt_text" in chunk for chunk in rest)
    assert "prompt_text" not in server.chat(return_prompt_text=False).json()
    refused = server.complete(return_prompt_text=True)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "return_prompt_text")


def test_a_stream_opens_with_roles_then_text_then_finish_reasons(server: Server) -> None:
    received = chunks(server.chat(stream=True, n=2))
    for chunk in received:
        assert set(chunk) == {"id", "object", "created", "model", "choices"}
        assert chunk["object"] == "chat.completion.chunk"
        assert chunk["id"] == received[0]["id"]
    choices = [chunk["choices"][0] for chunk in received]
    assert choices[:2] == [
        {"index": i, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
        for i in range(2)
    ]
    for index in range(2):
        mine = [choice for choice in choices if choice["index"] == index]
        assert "".join(choice["delta"].get("content", "") for choice in mine) == "the wheel turns"
        assert [choice["finish_reason"] for choice in mine[:-1]] == [None] * (len(mine) - 1)
        assert mine[-1] == {
            "index": index,
            "delta": {},
            "logprobs": None,
            "finish_reason": "stop",
            "stop_reason": None,
        }
        for choice in mine[1:-1]:
            assert set(choice["delta"]) == {"content"}


def test_the_last_text_may_come_with_the_finish_reason(server: Server) -> None:
    last = chunks(server.chat(stream=True, max_tokens=2))[-1]["choices"][0]
    assert last["delta"] == {"content": "he"}
    assert last["finish_reason"] == "length"


def test_log_probabilities_tell_token_bytes_and_alternatives(server: Server) -> None:
    content = server.chat(logprobs=True, top_logprobs=2).json()["choices"][0]["logprobs"]["content"]
    ids = [*tokenizer().encode("the wheel turns", add_special_tokens=False), 0]
    assert [entry["token"] for entry in content] == [tokenizer().token_text(i) for i in ids]
    made_up = logprobs_of(ids[1], 2)
    assert content[1] == {
        "token": "he",
        "logprob": made_up.logprob,
        "bytes": list(b"he"),
        "top_logprobs": [
            {
                "token": tokenizer().token_text(token_id),
                "logprob": value,
                "bytes": list(tokenizer().token_bytes(token_id)),
            }
            for token_id, value in made_up.top
        ],
    }


@pytest.mark.parametrize("top", [None, 0])
def test_log_probabilities_without_alternatives_have_an_empty_list(server: Server, top: int | None) -> None:
    content = server.chat(logprobs=True, top_logprobs=top).json()["choices"][0]["logprobs"]["content"]
    assert [entry["top_logprobs"] for entry in content] == [[]] * 5


def test_streamed_log_probabilities_joined_equal_the_whole_ones(server: Server) -> None:
    fields = {"logprobs": True, "top_logprobs": 1, "return_token_ids": True, "stop": "turns and on"}
    whole = server.chat(**fields).json()["choices"][0]
    streamed = [chunk["choices"][0] for chunk in chunks(server.chat(stream=True, **fields))]
    content = [entry for c in streamed if c["logprobs"] for entry in c["logprobs"]["content"]]
    assert content == whole["logprobs"]["content"]
    assert [i for c in streamed for i in c.get("token_ids", ())] == whole["token_ids"]


def test_minus_infinity_is_written_as_a_number_json_can_hold(server: Server) -> None:
    impossible = logprobs_of(7, 0)
    impossible = type(impossible)(7, float("-inf"), 9, ((7, float("-inf")),))

    def script(request: GenerateRequest) -> list[Delta]:
        return [Delta(request.request_id, (7,), (impossible,), finish=FinishReason.LENGTH)]

    server.engine.script = script
    entry = server.chat(logprobs=True, top_logprobs=1).json()["choices"][0]["logprobs"]["content"][0]
    assert entry["logprob"] == entry["top_logprobs"][0]["logprob"] == -9999.0


def test_tokens_can_be_named_by_id(server: Server) -> None:
    answer = server.chat(logprobs=True, top_logprobs=1, return_tokens_as_token_ids=True).json()
    ids = tokenizer().encode("the wheel turns", add_special_tokens=False)
    content = answer["choices"][0]["logprobs"]["content"]
    assert [entry["token"] for entry in content] == [f"token_id:{i}" for i in [*ids, 0]]


def test_token_ids_come_only_when_asked_for(server: Server) -> None:
    asked = server.chat(return_token_ids=True).json()
    assert asked["choices"][0]["token_ids"] == [
        *tokenizer().encode("the wheel turns", add_special_tokens=False),
        0,
    ]
    assert asked["prompt_token_ids"] == list(server.engine.submitted[-1].prompt_token_ids)
    first, second, *_ = chunks(server.chat(return_token_ids=True, stream=True))
    assert first["prompt_token_ids"] == asked["prompt_token_ids"]
    assert "prompt_token_ids" not in second
    plain = server.chat().json()
    assert "prompt_token_ids" not in plain
    assert "token_ids" not in plain["choices"][0]


def test_prompt_log_probabilities_are_by_token_id_and_start_with_null(server: Server) -> None:
    first, *rest = server.chat(prompt_logprobs=1).json()["prompt_logprobs"]
    prompt = server.engine.submitted[-1].prompt_token_ids
    assert first is None
    assert len(rest) == len(prompt) - 1
    for token_id, entry in zip(prompt[1:], rest, strict=True):
        made_up = logprobs_of(token_id, 1)
        likeliest = made_up.top[0][0]
        assert entry == {
            str(likeliest): {
                "logprob": -0.25,
                "rank": 1,
                "decoded_token": tokenizer().token_text(likeliest),
            },
            str(token_id): {
                "logprob": made_up.logprob,
                "rank": 2,
                "decoded_token": tokenizer().token_text(token_id),
            },
        }


@pytest.mark.parametrize("text", ["1, 2, 3,", "1, 2, 3, ", "1,\n", "🙂"])
@pytest.mark.parametrize("echo", [False, True])
def test_a_continued_message_ends_the_prompt_exactly(server: Server, text: str, echo: bool) -> None:
    messages = [{"role": "user", "content": "Count"}, {"role": "assistant", "content": text}]
    fields = {"messages": messages, "continue_final_message": True, "echo": echo}
    whole = server.chat(**fields).json()
    rendered = f"<|start|>user\nCount<|end|>\n<|start|>assistant\n{text}"
    expected = tokenizer().encode(rendered, add_special_tokens=False)
    assert list(server.engine.submitted[-1].prompt_token_ids) == expected
    answer = (text if echo else "") + "the wheel turns"
    assert whole["choices"][0]["message"]["content"] == answer
    streamed = chunks(server.chat(stream=True, **fields))
    assert "".join(c["choices"][0]["delta"].get("content", "") for c in streamed) == answer


def test_continuing_and_opening_a_turn_at_once_is_refused(server: Server) -> None:
    answer = server.chat(
        messages=[{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}],
        continue_final_message=True,
        add_generation_prompt=True,
    )
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "continue_final_message"


def test_a_chat_gets_no_second_start_token_unless_it_asks_for_one(server: Server) -> None:
    server.chat()
    rendered = tokenizer().encode(RENDERED, add_special_tokens=False)
    assert list(server.engine.submitted[-1].prompt_token_ids) == rendered
    server.chat(add_special_tokens=True)
    framed = tokenizer().encode(RENDERED, add_special_tokens=True)
    assert list(server.engine.submitted[-1].prompt_token_ids) == framed


def test_parts_are_joined_and_developers_speak_as_the_system(server: Server) -> None:
    server.chat(
        messages=[
            {"role": "developer", "content": "be brief"},
            {
                "role": "user",
                "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
            },
            {
                "role": "assistant",
                "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "c"}],
            },
        ]
    )
    assert tokenizer().decode(server.engine.submitted[-1].prompt_token_ids, skip_special_tokens=False) == (
        "<|start|>system\nbe brief<|end|>\n<|start|>user\na\nb<|end|>\n<|start|>assistant\nc<|end|>\n"
        "<|start|>assistant\n"
    )


@pytest.mark.parametrize(
    ("messages", "says_where"),
    [
        ("hello", "messages must be a list"),
        ([], "messages is empty"),
        (["hello"], "messages[0] must be an object"),
        ([{"role": "user", "content": "a"}, {"content": "b"}], "messages[1].role"),
        ([{"role": "wizard", "content": "a"}], "messages[0].role"),
        ([{"role": "user"}], "messages[0].content"),
        ([{"role": "user", "content": 3}], "messages[0].content"),
        ([{"role": "user", "content": ["a"]}], "messages[0].content[0]"),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0]"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}], "messages[0].content[0]"),
        ([{"role": "assistant", "content": [{"type": "thinking"}]}], "messages[0].content[0].thinking"),
        ([{"role": "assistant", "tool_calls": {}}], "messages[0].tool_calls"),
        ([{"role": "assistant", "tool_calls": [{"id": "1"}]}], "messages[0].tool_calls[0]"),
        ([{"role": "assistant", "content": "a", "reasoning": 1}], "messages[0].reasoning"),
    ],
)
def test_a_bad_message_is_refused_with_its_place(server: Server, messages: object, says_where: str) -> None:
    answer = server.chat(messages=messages)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["param"] == "messages"
    assert says_where in error["message"]
    assert not server.engine.submitted


def test_template_variables_and_reasoning_effort_reach_the_template(server: Server) -> None:
    reserved = server.chat(chat_template_kwargs={"messages": []})
    assert reserved.status_code == 400
    assert server.chat(chat_template_kwargs={"enable_thinking": False}, reasoning_effort="low").is_success


def test_an_answer_without_tokens_is_an_empty_text(server: Server) -> None:
    answer = server.chat(max_tokens=0).json()
    assert answer["choices"][0]["message"]["content"] == ""
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 0


def test_the_model_is_answered_by_the_name_it_was_asked_by(server: Server) -> None:
    assert server.chat(model="wheel-alias").json()["model"] == "wheel-alias"
    assert server.chat(model=None).json()["model"] == "wheel"


def test_ids_follow_the_client(server: Server) -> None:
    answer = server.client.post(
        "/v1/chat/completions",
        json={"messages": [{"role": "user", "content": "a"}], "request_id": "body-id"},
        headers={"X-Request-Id": "header-id"},
    )
    assert answer.headers["x-request-id"] == "header-id"
    assert answer.json()["id"] == "chatcmpl-header-id"
    assert server.chat(request_id="body-id").json()["id"] == "chatcmpl-body-id"
    generated = server.chat()
    assert generated.json()["id"] == f"chatcmpl-{generated.headers['x-request-id']}"


def test_two_requests_with_one_id_both_run(server: Server) -> None:
    assert server.chat(request_id="same").is_success
    assert server.chat(request_id="same").is_success
    first, second = (request.request_id for request in server.engine.submitted)
    assert first != second


def test_a_stream_is_never_compressed_or_buffered_by_its_headers(server: Server) -> None:
    answer = server.chat(stream=True)
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["x-accel-buffering"] == "no"
    assert "content-length" not in answer.headers
    assert sse_data(answer)[-1] == "[DONE]"


def test_characters_that_json_must_escape_survive_streaming(server: Server) -> None:
    server.engine.script = says('a "quoted" \\ line\n\ttab \x00 🙂 </script>')
    streamed = chunks(server.chat(stream=True))
    text = "".join(c["choices"][0]["delta"].get("content", "") for c in streamed)
    assert text == server.chat().json()["choices"][0]["message"]["content"]
    assert text == 'a "quoted" \\ line\n\ttab \x00 🙂 </script>'
