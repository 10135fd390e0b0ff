"""LLM.rerank gives what the server's /rerank answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from noria import LLM, RequestError
from noria.offline.reading import RerankOutput
from support_models import cached_checkpoint
from support_serving import serving

SETTINGS: dict[str, Any] = {"max_model_len": 512, "num_gpu_blocks_override": 64, "score_words": ("a", "b")}
DOCUMENTS = ["it turns and turns", {"text": "no"}, "the wheel, which turns", "it turns and turns"]
TEXTS = ["it turns and turns", "no", "the wheel, which turns", "it turns and turns"]


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM(cached_checkpoint("llama"), show_progress=False, **SETTINGS) as made:
        yield made


def ranked(llm: LLM, documents: Any = DOCUMENTS, **asked: Any) -> list[RerankOutput]:
    return llm.rerank("wheel", documents, show_progress=False, **asked)


@pytest.mark.parametrize(
    ("method", "asked"),
    [
        ("tokens", {}),
        ("tokens", {"instruction": "find what moves", "top_n": 2}),
        ("tokens", {"max_tokens_per_doc": 3}),
        ("similarity", {"top_n": 3, "truncate_prompt_tokens": 4}),
    ],
)
def test_a_ranking_is_the_servers_to_the_last_digit(method: str, asked: dict[str, Any]) -> None:
    settings = {**SETTINGS, "score_method": method}
    with LLM(cached_checkpoint("llama"), show_progress=False, **settings) as llm:
        outputs = ranked(llm, **asked)
    with serving(model=str(cached_checkpoint("llama")), **settings) as server:
        body = {"query": "wheel", "documents": DOCUMENTS, **asked}
        reply = httpx.post(f"{server.url}/rerank", json=body, timeout=60).json()
    told = [
        {
            "index": one.index,
            "relevance_score": one.relevance_score,
            "document": {"text": one.document},
        }
        for one in outputs
    ]
    assert told == reply["results"]
    assert len(told) == asked.get("top_n", len(DOCUMENTS))


def test_documents_come_best_first_by_their_scores(llm: LLM) -> None:
    scores = [output.score for output in llm.score("wheel", TEXTS, show_progress=False)]
    outputs = ranked(llm)
    assert [one.relevance_score for one in outputs] == sorted(scores, reverse=True)
    assert {one.index: (one.relevance_score, one.document) for one in outputs} == dict(
        enumerate(zip(scores, TEXTS, strict=True))
    )
    assert [one.index for one in outputs if one.index in (0, 3)] == [0, 3]  # equal ones, as they were given


@pytest.mark.parametrize(
    ("documents", "asked", "message"),
    [
        ([], {}, "documents must hold at least one text"),
        ("a text", {}, "documents must hold at least one text"),
        (["a", ""], {}, "documents must hold texts that are not empty; number 2 is none"),
        (["a"], {"top_n": -1}, "top_n must be at least 0, got -1"),
        (["a"], {"max_tokens_per_doc": 0}, "max_tokens_per_doc must be at least 1, got 0"),
    ],
)
def test_what_cannot_be_ranked_is_refused(
    llm: LLM, documents: Any, asked: dict[str, Any], message: str
) -> None:
    with pytest.raises(RequestError, match=message):
        ranked(llm, documents, **asked)
