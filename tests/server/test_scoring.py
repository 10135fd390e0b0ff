"""/score and /rerank in front of a scripted engine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from noria.config.abilities import ScoreMethod
from noria.config.pooling import Finish, Head
from noria.core.outputs import Delta, FinishReason
from noria.engine.messages import PoolRequest
from noria.tokenize.judging import judging_messages, judging_options
from support_pooling import ALL, LONG, ids, made_of, numbers, prompts, reading, refused
from support_server import FakeEngine, Server, served_model, serving, tokenizer

SIMILAR = replace(ALL, score_method=ScoreMethod.SIMILARITY)


def with_angle(request: PoolRequest) -> list[Delta]:
    """A vector of length 1, one for a text of the length of "a" and another for the others."""
    made = (1.0, 0.0) if len(request.prompt_token_ids) == len(ids("a")) else (0.8, 0.6)
    return [Delta(request.request_id, pooled=numbers(*made), finish=FinishReason.STOP)]


@pytest.mark.parametrize("path", ["/score", "/v1/score"])
def test_embedding_models_score_by_the_cosine_and_read_each_text_once(path: str) -> None:
    with reading(SIMILAR) as server:
        server.engine.script = with_angle
        reply = server.post(path, text_1="a", text_2=["a", "a b", "a"]).json()
        assert reply["object"] == "list" and reply["id"].startswith("score-")
        assert [entry["score"] for entry in reply["data"]] == pytest.approx([1.0, 0.8, 1.0])
        assert [entry["object"] for entry in reply["data"]] == ["score"] * 3
        assert len(prompts(server)) == 2
        assert {request.params.finish for request in server.engine.submitted} == {Finish.NORMALIZE}


@pytest.mark.parametrize(
    "sides",
    [
        {"queries": ["a", "b"], "documents": ["c", "d"]},
        {"text_1": ["a", "b"], "text_2": ["c", "d"]},
        {"data_1": ["a", "b"], "data_2": ["c", "d"]},
        {"queries": ["a", "b"], "items": ["c", "d"]},
    ],
)
def test_cross_encoders_read_each_pair_together(sides: dict[str, Any]) -> None:
    classes = replace(ALL, score_method=ScoreMethod.CLASSIFIER, labels=("fit",))
    with reading(classes) as server:
        reply = server.post("/score", **sides).json()
        assert [entry["score"] for entry in reply["data"]] == [0.25, 0.25]
        read = [tokenizer().encode_pair(*pair) for pair in (("a", "c"), ("b", "d"))]
        assert prompts(server) == [list(one) for one, _ in read]
        assert [request.params for request in server.engine.submitted] == [ALL.classes] * 2


def test_a_chat_model_scores_by_how_likely_the_first_word_is() -> None:
    fields = {"query": "wheel", "documents": ["w", {"text": "x"}], "instruction": "find"}
    with serving(FakeEngine(made_of), model=served_model(abilities=ALL, max_model_len=4096)) as server:
        reply = server.post("/rerank", **fields).json()
        assert [entry["relevance_score"] for entry in reply["results"]] == [0.25, 0.25]
        chats = [judging_messages("wheel", text, ("a", "b"), "find") for text in ("w", "x")]
        assert prompts(server) == [tokenizer().encode_chat(chat, judging_options()) for chat in chats]
        (first, second) = (request.params for request in server.engine.submitted)
        assert first == second
        assert (first.head, first.finish) == (Head.TOKENS, Finish.SOFTMAX)
        assert first.token_ids == tuple(
            tokenizer().encode(word, add_special_tokens=False)[0] for word in "ab"
        )


def by_length(request: PoolRequest) -> list[Delta]:
    """The longer the prompt, the better it fits."""
    share = len(request.prompt_token_ids) / 64
    return [Delta(request.request_id, pooled=numbers(share), finish=FinishReason.STOP, num_cached_tokens=3)]


@pytest.fixture
def ranker() -> Iterator[Server]:
    with reading(replace(ALL, score_method=ScoreMethod.CLASSIFIER, labels=("fit",))) as server:
        server.engine.script = by_length
        yield server


def test_what_fits_no_context_is_not_read_again_with_each_document(ranker: Server) -> None:
    words = reading(replace(ALL, score_method=ScoreMethod.TOKENS))
    with words as server:
        shared = {"query": "q", "documents": ["a", "b"], "instruction": LONG}
        refused(server.post("/rerank", **shared), "read with each document has", "query")
    cut = {"truncate_prompt_tokens": 9}
    refused(
        ranker.post("/rerank", query=LONG, documents=["a", "b"], **cut),
        "maximum context length is 64",
        "query",
    )
    refused(
        ranker.post("/score", text_1=LONG, text_2=["a", "b"], **cut),
        "maximum context length is 64",
        "queries",
    )
    assert ranker.engine.submitted == []


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank", "/v2/rerank"])
def test_documents_come_best_first_with_their_places(ranker: Server, path: str) -> None:
    reply = ranker.post(path, model="wheel", query="q", documents=["x", "x y z", {"text": "x y"}]).json()
    assert [entry["index"] for entry in reply["results"]] == [1, 2, 0]
    assert [entry["document"] for entry in reply["results"]] == [
        {"text": "x y z"},
        {"text": "x y"},
        {"text": "x"},
    ]
    scores = [entry["relevance_score"] for entry in reply["results"]]
    assert scores == sorted(scores, reverse=True)
    assert reply["id"].startswith("rerank-") and reply["model"] == "wheel"
    assert reply["usage"]["total_tokens"] == sum(map(len, prompts(ranker)))


def test_the_best_alone_may_be_asked_for_without_the_documents(ranker: Server) -> None:
    reply = ranker.post(
        "/rerank", query="q", documents=["x", "x y z"], top_n=1, return_documents=False
    ).json()
    (entry,) = reply["results"]
    assert entry["index"] == 1 and "document" not in entry


def test_documents_are_cut_to_the_length_asked_for(ranker: Server) -> None:
    document = "The water wheel turns"
    ranker.post("/rerank", query="q", documents=[document], max_tokens_per_doc=2)
    cut = tokenizer().decode(tokenizer().encode(document, add_special_tokens=False)[:2])
    assert prompts(ranker) == [list(tokenizer().encode_pair("q", cut)[0])]


def test_a_pair_is_cut_at_the_end_of_its_document_and_nowhere_else(ranker: Server) -> None:
    cut = {"query": "q", "documents": [LONG], "truncate_prompt_tokens": 9}
    ranker.post("/rerank", **cut)
    whole = list(tokenizer().encode_pair("q", LONG)[0])
    assert prompts(ranker) == [whole[:9]]
    refused(ranker.post("/rerank", **cut, truncation_side="left"), "beginnings alone", "truncation_side")


def test_a_chat_that_asks_about_a_document_is_not_cut() -> None:
    with serving(FakeEngine(made_of), model=served_model(abilities=ALL, max_model_len=4096)) as server:
        reply = server.post("/rerank", query="q", documents=["a"], truncate_prompt_tokens=9)
        refused(reply, "`max_tokens_per_doc`", "truncate_prompt_tokens")
        assert server.engine.submitted == []
        for most in (-1, 2000):  # which nothing is longer than
            reply = server.post("/rerank", query="q", documents=["a"], truncate_prompt_tokens=most)
            assert reply.status_code == 200


@pytest.mark.parametrize(
    ("fields", "message", "param"),
    [
        ({"documents": ["a"]}, "query", "query"),
        ({"query": "", "documents": ["a"]}, "query must hold texts that are not empty", "query"),
        ({"query": "a", "documents": []}, "documents must hold at least one text", "documents"),
        ({"query": "a", "documents": "b"}, "documents must hold at least one text", "documents"),
        ({"query": "a", "documents": ["b", {"image": 1}]}, "number 2 is none", "documents"),
        ({"query": "a", "documents": ["b"], "top_n": -1}, "top_n must be at least 0", "top_n"),
        ({"query": "a", "documents": ["b"], "max_tokens_per_doc": 0}, "at least 1", "max_tokens_per_doc"),
        ({"query": "a", "documents": ["b"], "instruction": "c"}, "scores without words", "instruction"),
        (
            {"query": "a", "documents": ["b"] * 2049},
            "holds 2049 texts; one request may have 2048",
            "documents",
        ),
    ],
)
def test_a_bad_request_to_rerank_is_refused(
    ranker: Server, fields: dict[str, Any], message: str, param: str
) -> None:
    refused(ranker.post("/rerank", **fields), message, param)


@pytest.mark.parametrize(
    ("fields", "message", "param"),
    [
        ({"text_1": "a"}, "one of `documents`, `items`, `text_2`, `data_2` is needed", "documents"),
        ({"text_2": "a"}, "one of `queries`, `text_1`, `data_1` is needed", "queries"),
        ({"text_1": "a", "queries": "b", "text_2": "c"}, "one of `queries`", "queries"),
        ({"text_1": ["a", "b"], "text_2": ["c"]}, "there are 2 queries and 1 documents", "queries"),
        ({"text_1": [1], "text_2": ["c"]}, "text_1 must hold texts that are not empty", "text_1"),
    ],
)
def test_a_bad_request_to_score_is_refused(
    ranker: Server, fields: dict[str, Any], message: str, param: str
) -> None:
    refused(ranker.post("/score", **fields), message, param)
