"""What a model is served for follows from what it is and from what was asked."""

from __future__ import annotations

from typing import Any

import pytest

from noria.config.abilities import Abilities, ScoreMethod, Task
from noria.config.asked_pooling import PoolingOptions
from noria.config.errors import ConfigError, RequestError
from noria.config.model import ClassifierConfig, EmbeddingConfig, ModelConfig
from noria.config.pooling import Finish, Head, Pooling, PoolingParams
from noria.config.settle_abilities import settle_abilities
from support_models import small_config

GENERATE = [Task.GENERATE]
EMBED = [Task.EMBED, Task.TOKEN_EMBED]
CLASSIFY = [Task.CLASSIFY, Task.TOKEN_CLASSIFY]
SCORE = [Task.SCORE]


def chat() -> ModelConfig:
    return small_config()


def embedder() -> ModelConfig:
    return small_config(embedding=EmbeddingConfig("mean", normalize=False))


def classifier(*labels: str) -> ModelConfig:
    activation = "sigmoid" if len(labels) == 1 else "softmax"
    return small_config(has_logits=False, classifier=ClassifierConfig(labels, activation, "cls"))


@pytest.mark.parametrize(
    ("model", "asked", "tasks"),
    [
        (chat(), {}, GENERATE + EMBED + SCORE),
        (chat(), {"runner": "generate"}, GENERATE + SCORE),
        (chat(), {"runner": "generate", "convert": "embed"}, GENERATE + EMBED + SCORE),
        (chat(), {"runner": "pooling"}, EMBED + SCORE),
        (chat(), {"convert": "none"}, GENERATE + SCORE),
        (embedder(), {}, EMBED + SCORE),
        (embedder(), {"runner": "generate"}, GENERATE + SCORE),
        (embedder(), {"convert": "none"}, EMBED + SCORE),
        (small_config(has_logits=False), {}, EMBED + SCORE),
        (classifier("a", "b"), {}, CLASSIFY),
        (classifier("a", "b"), {"convert": "classify"}, CLASSIFY),
        (classifier("a", "b"), {"convert": "embed"}, EMBED + CLASSIFY + SCORE),
        (classifier("fit"), {}, CLASSIFY + SCORE),
    ],
)
def test_tasks_follow_from_the_model_and_the_options(
    model: ModelConfig, asked: dict[str, Any], tasks: list[Task]
) -> None:
    assert settle_abilities(model, PoolingOptions(**asked)).tasks == tuple(tasks)


@pytest.mark.parametrize(
    ("model", "asked", "method"),
    [
        (chat(), {}, ScoreMethod.TOKENS),
        (chat(), {"score_method": "similarity"}, ScoreMethod.SIMILARITY),
        (embedder(), {}, ScoreMethod.SIMILARITY),
        (embedder(), {"score_method": "tokens"}, ScoreMethod.TOKENS),
        (classifier("fit"), {}, ScoreMethod.CLASSIFIER),
    ],
)
def test_how_texts_are_scored_follows_too(
    model: ModelConfig, asked: dict[str, Any], method: ScoreMethod
) -> None:
    assert settle_abilities(model, PoolingOptions(**asked)).score_method is method


@pytest.mark.parametrize(
    ("model", "stated", "params"),
    [
        (chat(), {}, PoolingParams(Pooling.LAST, finish=Finish.NORMALIZE)),
        (embedder(), {}, PoolingParams(Pooling.MEAN)),
        (embedder(), {"normalize": True}, PoolingParams(Pooling.MEAN, finish=Finish.NORMALIZE)),
        (chat(), {"pooling_type": "mean", "normalize": False}, PoolingParams(Pooling.MEAN)),
        (chat(), {"dimensions": 8}, PoolingParams(finish=Finish.NORMALIZE, dimensions=8)),
    ],
)
def test_an_embedding_is_what_the_checkpoint_says_unless_it_is_stated(
    model: ModelConfig, stated: dict[str, Any], params: PoolingParams
) -> None:
    assert settle_abilities(model, PoolingOptions(pooler_config=stated)).embedding == params


def test_classes_are_made_as_the_classifier_says() -> None:
    found = settle_abilities(classifier("fit"), PoolingOptions())
    assert found.classes == PoolingParams(Pooling.CLS, Head.CLASSES, Finish.SIGMOID)
    assert found.labels == ("fit",)


@pytest.mark.parametrize(
    ("model", "asked", "message"),
    [
        (classifier("a"), {"runner": "generate"}, "has no output over its vocabulary"),
        (chat(), {"convert": "classify"}, "the model has no classifier"),
        (chat(), {"score_method": "classifier"}, "the model cannot score so; it can by: tokens, similarity"),
        (small_config(has_logits=False), {"convert": "none"}, "leaves this model nothing to serve"),
        (chat(), {"score_words": ("yes",)}, "two different words, got yes"),
        (chat(), {"pooler_config": {"pool": 1}}, "--pooler-config holds pool; it may hold pooling_type"),
        (chat(), {"pooler_config": {"pooling_type": "MAX"}}, "one of LAST, MEAN, CLS, got 'MAX'"),
        (chat(), {"pooler_config": {"normalize": 1}}, "normalize is true or false, got 1"),
        (chat(), {"pooler_config": {"dimensions": 0}}, "whole numbers above 0"),
        (chat(), {"pooler_config": {"dimensions": 49}}, "dimensions is 49; the model's states have 48"),
        (chat(), {"pooler_config": {"matryoshka_dimensions": [True]}}, "whole numbers above 0"),
    ],
)
def test_what_cannot_be_is_refused_at_start(model: ModelConfig, asked: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        settle_abilities(model, PoolingOptions(**asked))


@pytest.mark.parametrize(
    ("stated", "dimensions", "message"),
    [
        ({}, 8, "cannot be cut"),
        ({"is_matryoshka": True}, 0, "at least 1 and at most 48, got 0"),
        ({"is_matryoshka": True}, 49, "at most 48, got 49"),
        ({"matryoshka_dimensions": [8, 16]}, 9, "must be one of 8, 16 for this model, got 9"),
    ],
)
def test_a_size_that_embeddings_are_not_made_for_is_refused(
    stated: dict[str, Any], dimensions: int, message: str
) -> None:
    abilities = settle_abilities(chat(), PoolingOptions(pooler_config=stated))
    with pytest.raises(RequestError, match=message):
        abilities.check_dimensions(dimensions)


def test_sizes_that_embeddings_are_made_for_are_taken() -> None:
    settle_abilities(chat(), PoolingOptions()).check_dimensions(None)
    settle_abilities(chat(), PoolingOptions(pooler_config={"is_matryoshka": True})).check_dimensions(7)
    settle_abilities(chat(), PoolingOptions(pooler_config={"matryoshka_dimensions": [8]})).check_dimensions(8)


def test_a_task_that_the_model_lacks_is_refused_naming_those_it_has() -> None:
    with pytest.raises(
        RequestError, match="does not classify; its tasks are: generate, embed, token_embed, score"
    ):
        Abilities().need(Task.CLASSIFY)
