"""Embeddings by stock clients on the embedded model: openai, sync and async, and LangChain."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import numpy as np
import openai
import pytest
from langchain_openai import OpenAIEmbeddings

from support_serving import Serving

TEXTS = ["The water wheel turns.", "Tokyo is the capital of Japan.", "x"]
SIZE = 576


def post(served: Serving, path: str, **fields: Any) -> dict[str, Any]:
    answer = httpx.post(served.url + path, json=fields, timeout=60)
    answer.raise_for_status()
    return answer.json()


def client_of(served: Serving, is_strict: bool = True) -> openai.OpenAI:
    """is_strict: as the client cannot be with base64, and with the first token of a prompt, which its types forbid."""
    return openai.OpenAI(
        base_url=f"{served.url}/v1", api_key="none", max_retries=0, _strict_response_validation=is_strict
    )


def in_floats(served: Serving, given: Any) -> np.ndarray:
    reply = client_of(served).embeddings.create(model="smollm2", input=given, encoding_format="float")
    return np.array([entry.embedding for entry in reply.data], np.float32)


def test_the_openai_client_reads_base64_unasked_and_floats_alike(served: Serving) -> None:
    reply = client_of(served, is_strict=False).embeddings.create(model="smollm2", input=TEXTS)
    found = np.array([entry.embedding for entry in reply.data], np.float32)
    assert found.shape == (len(TEXTS), SIZE)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)
    np.testing.assert_array_equal(found, in_floats(served, TEXTS))
    assert [entry.index for entry in reply.data] == [0, 1, 2]
    assert reply.usage.prompt_tokens == reply.usage.total_tokens > len(TEXTS)


def test_token_ids_give_the_embedding_of_their_text(served: Serving) -> None:
    ids = [post(served, "/tokenize", prompt=text)["tokens"] for text in TEXTS]
    np.testing.assert_array_equal(in_floats(served, ids), in_floats(served, TEXTS))
    np.testing.assert_array_equal(in_floats(served, ids[0])[0], in_floats(served, TEXTS)[0])


def test_the_async_client_gets_the_same_while_a_chat_runs(served: Serving) -> None:
    async def both() -> tuple[np.ndarray, str]:
        async with openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="none") as client:
            chat = client.chat.completions.create(
                model="smollm2",
                messages=[{"role": "user", "content": "What is the capital of Japan?"}],
                temperature=0,
                max_tokens=20,
            )
            replies = await asyncio.gather(
                chat, *(client.embeddings.create(model="smollm2", input=text) for text in TEXTS)
            )
        return np.array([reply.data[0].embedding for reply in replies[1:]], np.float32), replies[0].choices[
            0
        ].message.content

    found, answer = asyncio.run(both())
    np.testing.assert_array_equal(found, in_floats(served, TEXTS))
    assert "Tokyo" in answer


def test_dimensions_that_the_model_was_not_made_for_are_refused(served: Serving) -> None:
    with pytest.raises(openai.BadRequestError, match="cannot be cut") as refused:
        client_of(served).embeddings.create(model="smollm2", input="x", dimensions=8)
    assert refused.value.param == "dimensions"


def embeddings_of(served: Serving, **settings: Any) -> OpenAIEmbeddings:
    return OpenAIEmbeddings(
        model="smollm2", base_url=f"{served.url}/v1", api_key="none", max_retries=0, **settings
    )


def test_langchain_embeds_documents_and_queries(served: Serving) -> None:
    embeddings = embeddings_of(served, check_embedding_ctx_length=False)
    np.testing.assert_allclose(
        np.array(embeddings.embed_documents(TEXTS)), in_floats(served, TEXTS), atol=1e-7
    )
    query = np.array(embeddings.embed_query(TEXTS[0]))
    np.testing.assert_allclose(query, in_floats(served, TEXTS[0])[0], atol=1e-7)


class _ModelsTokenizer:
    """The served model's own, in the shape of the library that LangChain counts tokens with."""

    def __init__(self, served: Serving) -> None:
        self._served = served

    def encode_ordinary(self, text: str) -> list[int]:
        return post(self._served, "/tokenize", prompt=text)["tokens"]


def test_langchain_sends_ids_by_default_and_gets_what_they_stand_for(
    served: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tiktoken.encoding_for_model", lambda name: _ModelsTokenizer(served))
    found = np.array(embeddings_of(served).embed_documents(TEXTS))
    # LangChain normalises once more, in its own arithmetic.
    np.testing.assert_allclose(found, in_floats(served, TEXTS), atol=1e-6)


def test_ids_of_another_tokenizer_are_refused_with_the_way_out(served: Serving) -> None:
    with pytest.raises(openai.BadRequestError, match="check_embedding_ctx_length=False"):
        client_of(served).embeddings.create(model="smollm2", input=[[99999]])


def test_documents_are_ranked_and_scored_over_http(served: Serving) -> None:
    documents = ["The wheel turns in the river.", "Tokyo is the capital of Japan."]
    query = "What is the capital of Japan?"
    ranked = post(served, "/v1/rerank", model="smollm2", query=query, documents=documents)["results"]
    scored = post(served, "/v1/score", model="smollm2", text_1=query, text_2=documents)["data"]
    by_place = {entry["index"]: entry["relevance_score"] for entry in ranked}
    assert [by_place[entry["index"]] for entry in scored] == [entry["score"] for entry in scored]
    assert [entry["relevance_score"] for entry in ranked] == sorted(by_place.values(), reverse=True)


def test_choices_are_scored_by_the_log_probabilities_of_their_tokens(served: Serving) -> None:
    """The way of lm-eval and others: echo the prompt with each choice, and sum what the choice's tokens have."""
    context = "The capital of Japan is"
    num_context = post(served, "/tokenize", prompt=context)["count"]

    def share(choice: str) -> float:
        reply = client_of(served, is_strict=False).completions.create(
            model="smollm2", prompt=context + choice, echo=True, logprobs=1, max_tokens=0
        )
        assert reply.usage is not None and reply.usage.completion_tokens == 0
        return sum(reply.choices[0].logprobs.token_logprobs[num_context:])

    assert share(" Tokyo") > share(" Paris") > share(" wheel")
