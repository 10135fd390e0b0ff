"""Every field is honoured, refused by name, or known to change nothing."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from noria.sampling.params import SamplingParams
from noria.server.protocol.chat import ChatCompletionRequest
from noria.server.protocol.unsupported import REFUSED, REFUSED_UNLESS
from support_server import FakeEngine, Server, served_model, serving, tokenizer

# Known to clients; the answer is as good without them.
WITHOUT_EFFECT = ("user", "metadata", "store", "service_tier", "prediction", "prompt_cache_key", "verbosity")

BOTH = pytest.mark.parametrize("endpoint", ["chat", "complete"])


def ask(server: Server, endpoint: str, **fields: Any) -> Any:
    return getattr(server, endpoint)(**fields)


BAD_LINE_END = tuple(tuple(tokenizer().encode(text)) for text in ("\n", " \n"))

HONOURED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"n": 3}, {"n": 3}),
    ({"max_tokens": 7}, {"max_tokens": 7}),
    ({"max_tokens": 7.0}, {"max_tokens": 7}),
    ({"temperature": 0}, {"temperature": 0.0}),
    ({"top_p": 0.5}, {"top_p": 0.5}),
    ({"top_k": 4}, {"top_k": 4}),
    ({"min_p": 0.25}, {"min_p": 0.25}),
    ({"presence_penalty": -1}, {"presence_penalty": -1.0}),
    ({"frequency_penalty": 2}, {"frequency_penalty": 2.0}),
    ({"repetition_penalty": 1.5}, {"repetition_penalty": 1.5}),
    ({"seed": 2**64 - 1}, {"seed": 2**64 - 1}),
    ({"stop": "a"}, {"stop": ("a",)}),
    ({"stop": ["a", "b", "c", "d", "e"]}, {"stop": ("a", "b", "c", "d", "e")}),
    ({"stop": []}, {"stop": ()}),
    ({"stop_token_ids": [3, 4]}, {"stop_token_ids": (3, 4)}),
    ({"include_stop_str_in_output": True}, {"include_stop_str_in_output": True}),
    ({"ignore_eos": True}, {"ignore_eos": True}),
    ({"min_tokens": 2}, {"min_tokens": 2}),
    ({"skip_special_tokens": False}, {"skip_special_tokens": False}),
    ({"logit_bias": {"5": -100, "6": 1.5}}, {"logit_bias": {5: -100, 6: 1.5}}),
    ({"prompt_logprobs": 2}, {"prompt_logprobs": 2}),
    ({"allowed_token_ids": [7, 5]}, {"allowed_token_ids": (7, 5)}),
    ({"bad_words": ["\n"]}, {"bad_words": ("\n",), "bad_word_ids": BAD_LINE_END}),
]


@BOTH
@pytest.mark.parametrize(("fields", "expected"), HONOURED)
def test_a_sampling_field_reaches_the_engine(
    server: Server, endpoint: str, fields: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert ask(server, endpoint, **fields).status_code == 200
    params = server.engine.submitted[-1].params
    assert {name: getattr(params, name) for name in expected} == expected


@BOTH
def test_null_means_not_stated(server: Server, endpoint: str) -> None:
    ask(server, endpoint)
    plain = server.engine.submitted[-1].params
    names = [name for fields, _ in HONOURED for name in fields]
    others = ["stream", "logprobs", "echo", "cache_salt", "priority", "request_id", "add_special_tokens"]
    answer = ask(server, endpoint, **dict.fromkeys([*names, *others]))
    assert answer.status_code == 200
    assert server.engine.submitted[-1].params == plain


def test_what_a_chat_states_not_is_neutral_and_runs_to_the_contexts_end(server: Server) -> None:
    server.chat()
    request = server.engine.submitted[-1]
    assert request.params == SamplingParams(max_tokens=64 - len(request.prompt_token_ids))


def test_priority_and_salt_reach_the_engine(server: Server) -> None:
    server.chat(priority=-3, cache_salt="tenant 1")
    request = server.engine.submitted[-1]
    assert (request.priority, request.cache_salt) == (-3, "tenant 1")


def test_seeds_differ_between_choices_and_repeat_with_a_stated_seed(server: Server) -> None:
    server.chat(n=2, seed=5)
    assert [request.seed for request in server.engine.submitted] == [5, 6]
    server.chat(n=2)
    server.chat()
    drawn = [request.seed for request in server.engine.submitted[2:]]
    assert len(set(drawn)) == 3


def test_max_completion_tokens_wins(server: Server) -> None:
    server.chat(max_tokens=3, max_completion_tokens=2)
    assert server.engine.submitted[-1].params.max_tokens == 2
    error = server.chat(max_completion_tokens=-1).json()["error"]
    assert error["param"] == "max_completion_tokens"
    assert "max_completion_tokens must be at least 0" in error["message"]


@pytest.mark.parametrize(
    ("fields", "logprobs"),
    [
        ({"logprobs": True, "top_logprobs": 3}, 3),
        ({"logprobs": True}, 0),
        ({"logprobs": False}, None),
        ({"logprobs": False, "top_logprobs": 0}, None),
    ],
)
def test_chats_ask_for_alternatives_by_top_logprobs(
    server: Server, fields: dict[str, Any], logprobs: int | None
) -> None:
    server.chat(**fields)
    assert server.engine.submitted[-1].params.logprobs == logprobs


def test_the_models_defaults_hold_where_nothing_is_stated() -> None:
    defaults = {"temperature": 0.6, "top_p": 0.9, "top_k": 20, "min_p": 0.1, "repetition_penalty": 1.1}
    model = served_model(generation_defaults={**defaults, "do_sample": True, "transformers_version": "5"})
    with serving(FakeEngine(), model=model) as server:
        server.chat(top_p=0.5)
        params = server.engine.submitted[-1].params
        assert {name: getattr(params, name) for name in defaults} == {**defaults, "top_p": 0.5}


BAD: list[tuple[dict[str, Any], str]] = [
    ({"n": 0}, "n"),
    ({"n": 16385}, "n"),
    ({"n": 1.5}, "n"),
    ({"n": True}, "n"),
    ({"n": "2"}, "n"),
    ({"max_tokens": -1}, "max_tokens"),
    ({"temperature": -0.1}, "temperature"),
    ({"temperature": "hot"}, "temperature"),
    ({"temperature": [1]}, "temperature"),
    ({"top_p": 0}, "top_p"),
    ({"top_p": 1.1}, "top_p"),
    ({"top_k": -2}, "top_k"),
    ({"min_p": 2}, "min_p"),
    ({"presence_penalty": 3}, "presence_penalty"),
    ({"frequency_penalty": -3}, "frequency_penalty"),
    ({"repetition_penalty": 0}, "repetition_penalty"),
    ({"seed": 2**70}, "seed"),
    ({"seed": 0.5}, "seed"),
    ({"stop": ""}, "stop"),
    ({"stop": [""]}, "stop"),
    ({"stop": [1]}, "stop"),
    ({"stop": {"a": 1}}, "stop"),
    ({"stop": ["a"] * 65}, "stop"),
    ({"stop_token_ids": [-1]}, "stop_token_ids"),
    ({"stop_token_ids": [500]}, "stop_token_ids"),
    ({"stop_token_ids": ["a"]}, "stop_token_ids"),
    ({"stop_token_ids": {"1": 2}}, "stop_token_ids"),
    ({"ignore_eos": "yes"}, "ignore_eos"),
    ({"ignore_eos": 1}, "ignore_eos"),
    ({"min_tokens": -1}, "min_tokens"),
    ({"min_tokens": 8, "max_tokens": 7}, "min_tokens"),
    ({"logit_bias": {"x": 1}}, "logit_bias"),
    ({"logit_bias": {"-1": 1}}, "logit_bias"),
    ({"logit_bias": {"500": 1}}, "logit_bias"),
    ({"logit_bias": {"5": 101}}, "logit_bias"),
    ({"logit_bias": {"5": "a"}}, "logit_bias"),
    ({"logit_bias": {"²": 1}}, "logit_bias"),
    ({"logit_bias": [5]}, "logit_bias"),
    ({"allowed_token_ids": []}, "allowed_token_ids"),
    ({"allowed_token_ids": [500]}, "allowed_token_ids"),
    ({"allowed_token_ids": [-1]}, "allowed_token_ids"),
    ({"allowed_token_ids": ["a"]}, "allowed_token_ids"),
    ({"logprob_token_ids": [5]}, "logprob_token_ids"),
    ({"bad_words": [""]}, "bad_words"),
    ({"bad_words": [5]}, "bad_words"),
    ({"bad_words": "a"}, "bad_words"),
    ({"bad_words": ["a"] * 129}, "bad_words"),
    ({"truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
    ({"truncate_prompt_tokens": -2}, "truncate_prompt_tokens"),
    ({"truncate_prompt_tokens": 3, "truncation_side": "middle"}, "truncation_side"),
    ({"prompt_logprobs": -1}, "prompt_logprobs"),
    ({"prompt_logprobs": 6}, "prompt_logprobs"),
    ({"prompt_logprobs": 1, "stream": True}, "prompt_logprobs"),
    ({"stream": "yes"}, "stream"),
    ({"stream": True, "stream_options": {"include_usage": 1}}, "stream_options"),
    ({"stream_options": {}}, "stream_options"),
    ({"cache_salt": ""}, "cache_salt"),
    ({"cache_salt": "a" * 129}, "cache_salt"),
    *(({"cache_salt": f"a{taboo}b"}, "cache_salt") for taboo in "@/\\\0"),
    ({"priority": 0.5}, "priority"),
    ({"priority": 2**31}, "priority"),
    ({"request_id": ""}, "request_id"),
    ({"request_id": "a\nb"}, "request_id"),
    ({"request_id": "a" * 129}, "request_id"),
    ({"model": 5}, "model"),
]


@BOTH
@pytest.mark.parametrize(("fields", "param"), BAD)
def test_a_bad_value_is_refused_by_name_before_anything_is_submitted(
    server: Server, endpoint: str, fields: dict[str, Any], param: str
) -> None:
    answer = ask(server, endpoint, **fields)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["param"] == param
    assert error["type"] == "BadRequestError"
    assert param in error["message"]
    assert not server.engine.submitted


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"top_logprobs": 2, "logprobs": False}, "top_logprobs"),
        ({"top_logprobs": 6, "logprobs": True}, "top_logprobs"),
        ({"top_logprobs": -1, "logprobs": True}, "top_logprobs"),
        ({"logprobs": 2}, "logprobs"),
        ({"chat_template_kwargs": []}, "chat_template_kwargs"),
    ],
)
def test_bad_values_of_a_chats_own_fields_are_refused(
    server: Server, fields: dict[str, Any], param: str
) -> None:
    answer = server.chat(**fields)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


@pytest.mark.parametrize(("endpoint", "logprobs"), [("chat", True), ("complete", 1)])
def test_alternatives_may_be_named(server: Server, endpoint: str, logprobs: Any) -> None:
    assert ask(server, endpoint, logprobs=logprobs, logprob_token_ids=[7, 5]).status_code == 200
    assert server.engine.submitted[-1].params.logprob_token_ids == (7, 5)
    for bad in ([500], [-1], ["a"], [5] * 6):
        answer = ask(server, endpoint, logprobs=logprobs, logprob_token_ids=bad)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "logprob_token_ids")


@pytest.mark.parametrize("logprobs", [-1, 6, True, 1.5])
def test_bad_logprobs_of_a_completion_are_refused(server: Server, logprobs: Any) -> None:
    answer = server.complete(logprobs=logprobs)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "logprobs")


@BOTH
@pytest.mark.parametrize("name", sorted(REFUSED - ChatCompletionRequest.model_fields.keys()))
def test_a_field_that_would_change_the_answer_is_refused_unless_it_asks_for_nothing(
    server: Server, endpoint: str, name: str
) -> None:
    for value in ({"a": 1}, ["a"], "a", True, 1, 0):
        answer = ask(server, endpoint, **{name: value})
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == name
        assert f"does not support `{name}`" in answer.json()["error"]["message"]
    for value in (None, False, [], {}, ""):
        assert ask(server, endpoint, **{name: value}).status_code == 200


@BOTH
@pytest.mark.parametrize("name", sorted(REFUSED_UNLESS))
def test_a_field_with_one_harmless_value_takes_that_alone(server: Server, endpoint: str, name: str) -> None:
    for value in REFUSED_UNLESS[name]:
        assert ask(server, endpoint, **{name: value}).status_code == 200
    for value in ({"a": 1}, "auto", 0.5, ["text", "audio"]):
        answer = ask(server, endpoint, **{name: value})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, name)


def test_functions_may_be_there_when_they_must_not_be_called(server: Server) -> None:
    stated = {"functions": [{"name": "f"}]}
    assert server.chat(**stated, function_call="none").status_code == 200
    assert server.chat(**stated).json()["error"]["param"] == "functions"
    assert server.chat(function_call="none").status_code == 200


def test_the_choice_of_one_spelling_hides_no_tools_of_the_other(server: Server) -> None:
    tools = [{"name": "f"}]
    assert server.chat(functions=tools, tool_choice="none").json()["error"]["param"] == "functions"


def test_a_choice_of_tools_wants_tools(server: Server) -> None:
    lonely = server.chat(tool_choice="auto").json()["error"]
    assert lonely["message"] == "When using `tool_choice`, `tools` must be set."


@pytest.mark.parametrize(
    ("response_format", "status"),
    [
        ({"type": "text"}, 200),
        (None, 200),
        ({"type": "json_object"}, 200),
        ({"type": "json_schema"}, 400),
        ({"type": "json_schema", "json_schema": {"name": "a"}}, 400),
        ({"type": "json_schema", "json_schema": {"name": "a", "schema": "{}"}}, 400),
        ({"type": "json_schema", "json_schema": {"name": "a", "schema": {}}}, 200),
        ({"type": "yaml"}, 400),
        ({}, 400),
        ("text", 400),
    ],
)
def test_a_response_format_is_checked_before_anybody_reads_its_schema(
    server: Server, response_format: Any, status: int
) -> None:
    answer = server.chat(response_format=response_format)
    assert answer.status_code == status
    if status == 400:
        assert answer.json()["error"]["param"] == "response_format"


@BOTH
def test_fields_without_effect_pass_with_one_line_in_the_log(
    server: Server, endpoint: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "noria.server"):
        assert ask(server, endpoint, **dict.fromkeys(WITHOUT_EFFECT, "anything")).status_code == 200
    (record,) = [record for record in caplog.records if record.name == "noria.server"]
    names = ", ".join(repr(name) for name in WITHOUT_EFFECT)
    assert record.getMessage() == f"request fields without effect on this server: {names}"


@BOTH
def test_unknown_fields_pass_with_one_line_in_the_log(
    server: Server, endpoint: str, caplog: pytest.LogCaptureFixture
) -> None:
    unknown = {f"made_up_{i}\n": i for i in range(50)}
    with caplog.at_level(logging.INFO, "noria.server"):
        assert ask(server, endpoint, **unknown).status_code == 200
    (record,) = [record for record in caplog.records if record.name == "noria.server"]
    message = record.getMessage()
    assert "'made_up_0\\n'" in message
    assert "and 40 more" in message
    assert "\n" not in message


@BOTH
def test_a_request_longer_than_the_context_is_refused_in_the_words_clients_look_for(
    server: Server, endpoint: str
) -> None:
    for fields in (
        {"max_tokens": 63},
        {"prompt": [5] * 64, "messages": [{"role": "user", "content": "a " * 99}]},
    ):
        answer = ask(server, endpoint, **fields)
        assert answer.status_code == 400
        error = answer.json()["error"]
        assert error["message"].startswith("This model's maximum context length is 64 tokens. However, ")
        assert error["message"].endswith("(context_length_exceeded)")
        assert error["param"] == ("messages" if endpoint == "chat" else "prompt")
    assert not server.engine.submitted


def test_a_request_may_fill_the_context_to_the_last_token(server: Server) -> None:
    assert server.complete(prompt=[5] * 60, max_tokens=4).status_code == 200
    assert server.complete(prompt=[5] * 60, max_tokens=5).status_code == 400
    assert server.complete(prompt=[5] * 64, max_tokens=0, echo=True, logprobs=1).status_code == 200


def test_prompts_and_choices_are_bounded(server: Server) -> None:
    too_many = server.complete(prompt=[[5]] * 1025)
    assert (too_many.status_code, too_many.json()["error"]["param"]) == (400, "prompt")
    product = server.complete(prompt=[[5]] * 1024, n=17)
    assert (product.status_code, product.json()["error"]["param"]) == (400, "n")
    assert not server.engine.submitted


@pytest.mark.parametrize(("max_logprobs", "asked", "status"), [(-1, 500, 200), (-1, 501, 400), (0, 1, 400)])
def test_minus_one_allows_log_probabilities_of_the_whole_vocabulary(
    max_logprobs: int, asked: int, status: int
) -> None:
    with serving(FakeEngine(), model=served_model(max_logprobs=max_logprobs)) as server:
        assert server.complete(logprobs=asked).status_code == status
        assert server.chat(logprobs=True, top_logprobs=asked).status_code == status
        assert server.complete(prompt_logprobs=asked).status_code == status
