"""The routes that read texts and continue none, in front of a scripted engine."""

from __future__ import annotations

import base64
import socket
import struct
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from noria.config.abilities import Abilities, Task
from noria.config.errors import OverloadError, Refusal, RequestError
from noria.config.pooling import Pooling, PoolingParams
from noria.core.outputs import Delta, FinishReason
from noria.tokenize.chat_template import ChatOptions
from support_pooling import ALL, LONG, ids, made_of, prompts, reading, refused
from support_server import FakeEngine, Server, served_model, serving, tokenizer

HEAD = (
    b"POST /v1/embeddings HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
)


@pytest.fixture(scope="module")
def _reader() -> Iterator[Server]:
    with reading() as server:
        yield server


@pytest.fixture
def reader(_reader: Server) -> Server:
    _reader.engine.script = made_of
    _reader.engine.submitted.clear()
    return _reader


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("The water", [ids("The water")]),
        (["The water", "wheel"], [ids("The water"), ids("wheel")]),
        ([5, 6, 7], [[5, 6, 7]]),
        ([[5, 6], [7]], [[5, 6], [7]]),
    ],
)
def test_every_form_of_input_is_read(reader: Server, given: Any, read: list[list[int]]) -> None:
    reply = reader.post("/v1/embeddings", model="wheel", input=given).json()
    assert prompts(reader) == read
    assert reply["object"] == "list" and reply["model"] == "wheel" and reply["id"].startswith("embd-")
    assert [entry["embedding"] for entry in reply["data"]] == [[one[0], len(one), 0.5, 0] for one in read]
    assert [(entry["index"], entry["object"]) for entry in reply["data"]] == [
        (index, "embedding") for index in range(len(read))
    ]
    num_tokens = sum(map(len, read))
    assert reply["usage"] == {
        "prompt_tokens": num_tokens,
        "total_tokens": num_tokens,
        "completion_tokens": 0,
    }


def test_base64_is_of_little_endian_floats(reader: Server) -> None:
    reply = reader.post("/v1/embeddings", input=[5, 6], encoding_format="base64").json()
    packed = base64.b64decode(reply["data"][0]["embedding"])
    assert struct.unpack("<4f", packed) == (5, 2, 0.5, 0)


def test_a_chat_is_read_through_the_template(reader: Server) -> None:
    reader.post("/v1/embeddings", messages=[{"role": "user", "content": "turn"}])
    options = ChatOptions(add_generation_prompt=False)
    assert prompts(reader) == [tokenizer().encode_chat([{"role": "user", "content": "turn"}], options)]


def test_fewer_dimensions_are_asked_of_the_engine(reader: Server) -> None:
    reply = reader.post("/v1/embeddings", input=[5], dimensions=2).json()
    assert reply["data"][0]["embedding"] == [5, 1]
    (request,) = reader.engine.submitted
    assert request.params == replace(ALL.embedding, dimensions=2)


def test_what_is_asked_of_a_prompts_place_reaches_the_engine(reader: Server) -> None:
    reader.post("/v1/embeddings", input=[5], priority=3, cache_salt="mine", request_timeout=900)
    (request,) = reader.engine.submitted
    assert (request.priority, request.cache_salt) == (3, "mine")
    assert request.timeout_s is not None and 0 < request.timeout_s <= 900


@pytest.mark.parametrize(
    ("fields", "read"),
    [
        ({"truncate_prompt_tokens": 5}, ids(LONG)[:5]),
        ({"truncate_prompt_tokens": 5, "truncation_side": "left"}, ids(LONG)[-5:]),
        ({"truncate_prompt_tokens": -1}, ids(LONG)[:64]),
    ],
)
def test_a_long_text_is_cut_where_that_is_asked_for(
    reader: Server, fields: dict[str, Any], read: list[int]
) -> None:
    assert len(ids(LONG)) > 64
    assert reader.post("/v1/embeddings", input=LONG, **fields).status_code == 200
    assert prompts(reader) == [read]


@pytest.mark.parametrize(
    ("fields", "message", "param"),
    [
        ({}, "one of `input` and `messages` is needed", "input"),
        ({"input": ""}, "input is empty", "input"),
        ({"input": []}, "input is empty", "input"),
        ({"input": ["a", ""]}, "input is empty", "input"),
        ({"input": [["a"]]}, "is not a token id", "input"),
        ({"input": {"text": "a"}}, "input must be a string, a list of strings", "input"),
        ({"input": [499, 500]}, "from 0 to 499, got 500", "input"),
        ({"input": [500]}, "check_embedding_ctx_length=False", "input"),
        ({"input": LONG}, "This model's maximum context length is 64 tokens. However, the text has", "input"),
        ({"input": [[5], [5] * 65]}, "text 2 of 2 has 65. Shorten it", "input"),
        ({"input": [5], "encoding_format": "int8"}, "must be float or base64, got 'int8'", "encoding_format"),
        ({"input": [5], "dimensions": 0}, "dimensions must be at least 1 and at most 4, got 0", "dimensions"),
        ({"input": [5], "dimensions": 5}, "at most 4, got 5", "dimensions"),
        ({"input": [5], "truncate_prompt_tokens": 0}, "at least 1, or -1", "truncate_prompt_tokens"),
        ({"input": [5], "cache_salt": "@"}, "cache_salt must have 1 to 128", "cache_salt"),
        ({"input": [5], "prompt_embeds": "x"}, "does not support `prompt_embeds`", "prompt_embeds"),
        ({"input": [[5]] * 2049}, "input holds 2049 prompts; one request may have 2048", "input"),
    ],
)
def test_a_bad_request_for_embeddings_is_refused_naming_its_field(
    reader: Server, fields: dict[str, Any], message: str, param: str
) -> None:
    refused(reader.post("/v1/embeddings", **fields), message, param)
    assert prompts(reader) == []


@pytest.mark.parametrize(
    ("task", "data", "params"),
    [
        (None, [5, 2, 0.5, 0], ALL.embedding),
        ("embed", [5, 2, 0.5, 0], ALL.embedding),
        ("token_embed", [[5], [6]], replace(ALL.embedding, pooling=Pooling.ALL)),
        ("classify", [0.25, 0.75], ALL.classes),
        ("token_classify", [0.25, 0.75], replace(ALL.classes, pooling=Pooling.ALL)),
    ],
)
def test_every_task_is_pooled(reader: Server, task: str | None, data: list, params: PoolingParams) -> None:
    reply = reader.post("/pooling", input=[5, 6], task=task).json()
    assert reply["data"] == [{"index": 0, "object": "pooling", "data": data}]
    assert reader.engine.submitted[0].params == params


def test_labels_are_told_with_how_likely_each_is(reader: Server) -> None:
    reply = reader.post("/classify", input=["wheel", "water"]).json()
    entry = {"label": "good", "probs": [0.25, 0.75], "num_classes": 2}
    assert reply["data"] == [{"index": 0, **entry}, {"index": 1, **entry}]


@pytest.mark.parametrize(
    ("path", "fields", "message"),
    [
        ("/classify", {"input": [5]}, "this model does not classify; its tasks are: generate"),
        ("/v1/embeddings", {"input": [5]}, "this model does not embed"),
        ("/pooling", {"input": [5]}, "this model does not embed"),
        ("/pooling", {"input": [5], "task": "token_classify"}, "this model does not token_classify"),
        ("/score", {"text_1": "a", "text_2": "b"}, "this model does not score"),
        ("/rerank", {"query": "a", "documents": ["b"]}, "this model does not score"),
    ],
)
def test_a_task_that_the_model_lacks_is_refused_with_those_it_has(
    path: str, fields: dict[str, Any], message: str
) -> None:
    with reading(Abilities(tasks=(Task.GENERATE,))) as server:
        refused(server.post(path, **fields), message, "model")


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_a_model_that_generates_nothing_says_so(path: str) -> None:
    with reading(replace(ALL, tasks=(Task.EMBED,))) as server:
        body = {"messages": [{"role": "user", "content": "a"}]} if "chat" in path else {"prompt": "a"}
        refused(server.post(path, **body), "does not generate; its tasks are: embed", "model")


def test_the_list_of_models_tells_the_tasks(reader: Server) -> None:
    assert reader.get("/v1/models").json()["data"][0]["tasks"] == [task.value for task in Task]


class WithoutTemplate:
    """The tokenizer of a model that has no chat template."""

    def __getattr__(self, name: str) -> Any:
        return getattr(tokenizer(), name)

    def encode_chat(self, *arguments: Any) -> list[int]:
        raise RequestError("the model has no chat template; start with --chat-template FILE", "messages")


def test_a_chat_with_a_model_that_answers_none_is_told_so_and_not_of_its_template() -> None:
    untold = replace(served_model(abilities=Abilities((Task.EMBED,))), tokenizer=WithoutTemplate())
    with serving(FakeEngine(), model=untold) as server:
        for path, body in {
            "/v1/chat/completions": {"messages": [{"role": "user", "content": "a"}]},
            "/v1/responses": {"input": "a"},
            "/v1/messages": {
                "model": "wheel",
                "messages": [{"role": "user", "content": "a"}],
                "max_tokens": 5,
            },
            "/v1/messages/count_tokens": {"model": "wheel", "messages": [{"role": "user", "content": "a"}]},
        }.items():
            error = server.post(path, **body).json()["error"]
            assert error["message"] == "this model does not generate; its tasks are: embed", path


def test_cached_tokens_are_told_where_the_server_is_asked_to() -> None:
    with reading(enable_prompt_tokens_details=True) as server:
        reply = server.post("/v1/embeddings", input=[[5], [6]]).json()
        assert reply["usage"]["prompt_tokens_details"] == {"cached_tokens": 2}


def test_a_prompt_that_fails_is_an_error_of_the_request(reader: Server) -> None:
    reader.engine.script = lambda request: [
        Delta(request.request_id, finish=FinishReason.ERROR, error="not numbers")
    ]
    refused(reader.post("/v1/embeddings", input=[[5], [6]]), "not numbers", None)


def test_an_engine_that_is_full_refuses_with_the_time_to_come_back(reader: Server) -> None:
    reader.engine.submit_error = OverloadError("full", Refusal.QUEUED_REQUESTS, 7)
    try:
        response = reader.post("/v1/embeddings", input=[5])
    finally:
        reader.engine.submit_error = None
    assert (response.status_code, response.headers["retry-after"]) == (503, "7")


def test_a_client_that_leaves_has_its_prompts_cancelled() -> None:
    engine = FakeEngine(made_of, is_auto=False)
    with serving(engine, model=served_model(abilities=ALL)) as server:
        body = b'{"input": [[5], [6], [7]]}'
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
            client.sendall(HEAD % len(body) + body)
            engine.wait_for(lambda: len(engine.submitted) == 3)
        engine.wait_for(lambda: len(engine.cancelled) == 3)
        assert set(engine.cancelled) == {request.request_id for request in engine.submitted}
        assert server.app.state.switchboard.bridge.num_open == 0


def test_numbers_of_each_token_are_bounded_before_anything_is_read() -> None:
    wide = replace(ALL, embedding_size=2**20, labels=("a",) * 2**20)
    with reading(wide) as server:
        for task in ("token_embed", "token_classify"):
            asked = {"task": task, "input": [[5] * 16, [6] * 17]}
            refused(
                server.post("/pooling", **asked), f"{33 * 2**20} numbers in all; one reply may have", "input"
            )
        assert server.engine.submitted == []
        fits = server.post("/pooling", task="token_embed", input=[[5] * 16, [6] * 16])
        assert fits.status_code == 200
        whole = server.post("/v1/embeddings", input=[[5] * 16, [6] * 17])
        assert whole.status_code == 200
