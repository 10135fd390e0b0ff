"""Embeddings, classes and scores of the offline API on small real models, and what they are held against."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from noria import LLM, ConfigError, RequestError, SamplingParams
from noria.offline.bars import ReadingBar
from noria.tokenize.judging import judging_messages, judging_options
from support_embedded import embedded_model
from support_models import cached_checkpoint, hf_config, hf_model, write_tokenizer

TEXTS = [
    "The water wheel turns.",
    "x",
    "Count from one to ten: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10. " * 3,
    "A request that is finished leaves the batch, and a waiting one takes its place.",
    "Grüße aus Köln",
]
MEAN = {"pooling_type": "MEAN"}


def open_llm(model: Path, **settings: Any) -> LLM:
    given = {"max_model_len": 256, "num_gpu_blocks_override": 64, "show_progress": False, **settings}
    return LLM(model, **given)


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with open_llm(cached_checkpoint("llama")) as llm:
        yield llm


def vectors(llm: LLM, texts: Any, **options: Any) -> np.ndarray:
    return np.array([output.embedding for output in llm.embed(texts, show_progress=False, **options)])


def reference_states(llm: LLM, texts: list[str]) -> list[np.ndarray]:
    """The last hidden states that transformers gives, [tokens, H] for each text."""
    model = hf_model(hf_config("llama")).model
    with torch.no_grad():
        return [
            model(torch.tensor([llm.tokenizer.encode(text)])).last_hidden_state[0].numpy() for text in texts
        ]


def normalised(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def test_an_embedding_is_the_last_state_that_transformers_gives(llm: LLM) -> None:
    expected = normalised(np.array([states[-1] for states in reference_states(llm, TEXTS)]))
    np.testing.assert_allclose(vectors(llm, TEXTS), expected, atol=1e-3)


def test_a_stated_pooler_takes_the_mean(llm: LLM) -> None:
    expected = np.array([states.mean(0) for states in reference_states(llm, TEXTS)])
    with open_llm(cached_checkpoint("llama"), pooler_config={**MEAN, "normalize": False}) as other:
        np.testing.assert_allclose(vectors(other, TEXTS), expected, atol=1e-3)


@pytest.mark.parametrize("pooler", [{}, MEAN])
@pytest.mark.parametrize("num_threads", [1, 2])
def test_an_embedding_has_the_same_bits_whatever_it_is_computed_with(
    pooler: dict[str, str], num_threads: int
) -> None:
    model = cached_checkpoint("llama")
    with open_llm(model, pooler_config=pooler, num_threads=1) as lone:
        expected = np.concatenate([vectors(lone, text) for text in TEXTS])
    settings = {"pooler_config": pooler, "num_threads": num_threads, "max_num_batched_tokens": 16}
    with open_llm(model, **settings) as llm, ThreadPoolExecutor(1) as pool:
        params = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True)
        generating = pool.submit(llm.generate, TEXTS, params, show_progress=False)
        for _ in range(3):
            np.testing.assert_array_equal(vectors(llm, TEXTS), expected)
        beside = [result.outputs[0].token_ids for result in generating.result()]
        alone = [llm.generate(text, params, show_progress=False)[0].outputs[0].token_ids for text in TEXTS]
        assert beside == alone


def test_the_last_state_comes_after_a_cached_beginning_with_the_same_bits(llm: LLM) -> None:
    beginning = "The wheel, whose buckets fill and empty, turns on and on. "
    with open_llm(cached_checkpoint("llama"), enable_prefix_caching=False) as other:
        expected = vectors(other, [beginning + "a", beginning + "b"])
    first, second = (llm.embed(beginning + end, show_progress=False)[0] for end in "ab")
    shared = len(llm.tokenizer.encode(beginning)) // 16 * 16
    assert second.num_cached_tokens == shared > 0
    np.testing.assert_array_equal(np.array([first.embedding, second.embedding]), expected)


def test_the_mean_takes_nothing_from_the_cache() -> None:
    with open_llm(cached_checkpoint("llama"), pooler_config=MEAN) as llm:
        outputs = [llm.embed(TEXTS[2], show_progress=False)[0] for _ in range(2)]
    assert [output.num_cached_tokens for output in outputs] == [0, 0]
    np.testing.assert_array_equal(outputs[0].embedding, outputs[1].embedding)


def test_a_chat_model_scores_by_the_words_at_the_prompts_end(llm: LLM) -> None:
    with open_llm(cached_checkpoint("llama"), score_words=("a", "b"), max_model_len=512) as llm:
        documents = ["it turns", "no"]
        scores = [output.score for output in llm.score("wheel", documents, show_progress=False)]
        ids = [llm.tokenizer.encode(word, add_special_tokens=False)[0] for word in "ab"]
        for document, score in zip(documents, scores, strict=True):
            chat = judging_messages("wheel", document, ("a", "b"))
            prompt = llm.tokenizer.encode_chat(chat, judging_options())
            asked = SamplingParams(temperature=0, max_tokens=1, logprobs=0, logprob_token_ids=ids)
            [result] = llm.generate([prompt], asked, show_progress=False)
            logprobs = dict(result.outputs[0].logprobs[0].top)
            shares = np.exp([logprobs[i] for i in ids])
            assert score == pytest.approx(shares[0] / shares.sum(), abs=1e-5)


def test_documents_of_one_query_share_what_comes_before_them() -> None:
    with open_llm(cached_checkpoint("llama"), score_words=("a", "b"), max_model_len=512) as llm:
        llm.score("wheel", ["it turns", "it stops", "no"], show_progress=False)
        cached = [record.num_cached_tokens for record in llm.client.recorder.requests()]
        chats = [judging_messages("wheel", text, ("a", "b")) for text in ("it turns", "no")]
        first, second = (llm.tokenizer.encode_chat(chat, judging_options()) for chat in chats)
        num_common = next(i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)
        assert sorted(cached) == [0, num_common // 16 * 16, num_common // 16 * 16]


def test_a_classifier_tells_labels_and_scores_pairs(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = hf_config("qwen3", num_labels=1, pad_token_id=0)
    config.architectures = None
    torch.manual_seed(1)
    model = transformers.Qwen3ForSequenceClassification(config).eval()
    model.save_pretrained(tmp_path)
    write_tokenizer(tmp_path)
    with open_llm(tmp_path) as llm:
        [output] = llm.classify(TEXTS[0], show_progress=False)
        with torch.no_grad():
            expected = torch.sigmoid(model(torch.tensor([llm.tokenizer.encode(TEXTS[0])])).logits[0]).numpy()
        np.testing.assert_allclose(output.probs, expected, atol=1e-3)
        assert output.label == "LABEL_0"
        [score] = llm.score("wheel", "turns", show_progress=False)
        pair, _ = llm.tokenizer.encode_pair("wheel", "turns")
        with torch.no_grad():
            expected = torch.sigmoid(model(torch.tensor([pair])).logits[0, 0]).item()
        assert score.score == pytest.approx(expected, abs=1e-3)
        with pytest.raises(RequestError, match="does not embed; its tasks are: classify"):
            llm.embed("x", show_progress=False)
        with pytest.raises(RequestError, match="it generates no text"):
            llm.generate("x", show_progress=False)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda llm: llm.classify("x"), "does not classify; its tasks are: generate, embed"),
        (lambda llm: llm.embed("x", dimensions=3), "cannot be cut"),
        (lambda llm: llm.embed([["x"]]), "'x' in it"),
        (lambda llm: llm.embed([[1] * 257]), "the prompt has 257 tokens"),
        (lambda llm: llm.score(["a", "b"], ["c"]), "there are 2 queries and 1 documents"),
        (lambda llm: llm.score("a", "c"), "no single token for the word 'yes'"),
    ],
)
def test_what_cannot_be_read_is_refused(llm: LLM, call: Any, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        call(llm)


def test_a_long_text_is_cut_where_that_is_asked_for(llm: LLM) -> None:
    [output] = llm.embed(TEXTS[2], truncate_prompt_tokens=7, show_progress=False)
    assert list(output.prompt_token_ids) == llm.tokenizer.encode(TEXTS[2])[:7]


def test_what_a_model_cannot_be_served_for_is_told_before_it_is_loaded() -> None:
    with pytest.raises(ConfigError, match="the model has no classifier"):
        open_llm(cached_checkpoint("llama"), convert="classify")


def test_progress_is_shown_on_standard_error(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    finished: list[tuple[int, int]] = []
    monkeypatch.setattr(ReadingBar, "finish", lambda self, *counts: finished.append(counts))
    llm.embed(TEXTS)
    num_tokens, num_prompts = map(sum, zip(*finished, strict=True))
    assert num_tokens == sum(len(llm.tokenizer.encode(text)) for text in TEXTS)
    assert num_prompts == len(TEXTS)


def test_quantised_weights_give_the_embeddings_of_their_own_numbers_in_float32() -> None:
    settings = {"num_gpu_blocks_override": 64, "show_progress": False, "max_model_len": 256}
    with LLM(embedded_model(), backend="native", **settings) as llm:
        found = vectors(llm, TEXTS)
    with LLM(embedded_model(), backend="torch", dtype="float32", **settings) as llm:
        exact = vectors(llm, TEXTS)
    assert (found * exact).sum(-1).min() >= 0.999


def test_the_embedded_model_scores_by_saying_yes() -> None:
    with LLM(embedded_model(), num_gpu_blocks_override=64, max_model_len=512, show_progress=False) as llm:
        outputs = llm.score(
            "What is the capital of Japan?", ["Tokyo is the capital of Japan.", "x"], show_progress=False
        )
        assert all(0 < output.score < 1 for output in outputs)
