"""What a model is served for: a pure function of what it is and of what was asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from noria.config.abilities import Abilities, ScoreMethod, Task
from noria.config.asked_pooling import PoolingOptions
from noria.config.errors import ConfigError
from noria.config.model import ModelConfig
from noria.config.option import AUTO
from noria.config.pooling import Finish, Head, Pooling, PoolingParams

_FINISHES = {"identity": Finish.NONE, "sigmoid": Finish.SIGMOID, "softmax": Finish.SOFTMAX}
_POOLER_KEYS = (
    "pooling_type",
    "normalize",
    "dimensions",
    "is_matryoshka",
    "matryoshka_dimensions",
)
_POOLINGS = {"LAST": Pooling.LAST, "MEAN": Pooling.MEAN, "CLS": Pooling.CLS}


def settle_abilities(model: ModelConfig, asked: PoolingOptions) -> Abilities:
    """Raises ConfigError for what the model cannot be served for."""
    stated = _stated_pooler(asked.pooler_config or {})
    tasks = _tasks(model, asked)
    words = _words(asked)
    return Abilities(
        tasks=tasks,
        embedding=_embedding(model, stated),
        classes=_classes(model),
        labels=model.classifier.labels if model.classifier else (),
        score_method=_score_method(model, asked, tasks),
        score_words=words,
        embedding_size=model.hidden_size,
        matryoshka=_matryoshka(model, stated),
    )


def _tasks(model: ModelConfig, asked: PoolingOptions) -> tuple[Task, ...]:
    made_for_pooling = model.embedding is not None or not model.has_logits
    generates = model.has_logits and asked.runner != "pooling"
    if asked.runner == AUTO and made_for_pooling:
        generates = False
    if asked.runner == "generate" and not model.has_logits:
        raise ConfigError(
            "--runner generate: the model has no output over its vocabulary; it can serve pooling"
        )
    if asked.convert == "classify" and model.classifier is None:
        raise ConfigError(
            "--convert classify: the model has no classifier; leave --convert out, or take embed"
        )
    embeds = asked.convert in (AUTO, "embed") or (asked.convert == "none" and model.embedding is not None)
    if asked.convert == AUTO and model.classifier is not None and model.embedding is None:
        embeds = False  # the states of a classifier were trained for its labels
    if asked.runner == "generate" and asked.convert == AUTO:
        embeds = False
    tasks = [Task.GENERATE] if generates else []
    tasks += [Task.EMBED, Task.TOKEN_EMBED] if embeds else []
    if model.classifier is not None:
        tasks += [Task.CLASSIFY, Task.TOKEN_CLASSIFY]
    if _methods(model, embeds):
        tasks.append(Task.SCORE)
    if not tasks:
        raise ConfigError(
            f"--runner {asked.runner} with --convert {asked.convert} leaves this model nothing to serve"
        )
    return tuple(tasks)


def _methods(model: ModelConfig, embeds: bool) -> list[ScoreMethod]:
    """Those that the model is able to, the one it is best at first."""
    has_classifier = model.classifier is not None and len(model.classifier.labels) == 1
    able = {
        ScoreMethod.CLASSIFIER: has_classifier,
        ScoreMethod.SIMILARITY: embeds and model.embedding is not None,
        ScoreMethod.TOKENS: model.has_logits,
    }
    methods = [method for method, is_able in able.items() if is_able]
    if embeds and ScoreMethod.SIMILARITY not in methods:
        methods.append(ScoreMethod.SIMILARITY)
    return methods


def _score_method(model: ModelConfig, asked: PoolingOptions, tasks: tuple[Task, ...]) -> ScoreMethod:
    methods = _methods(model, Task.EMBED in tasks)
    if asked.score_method == AUTO:
        return methods[0] if methods else ScoreMethod.SIMILARITY
    wanted = ScoreMethod(asked.score_method)
    if wanted not in methods:
        able = ", ".join(method.value for method in methods) or "none"
        raise ConfigError(f"--score-method {wanted.value}: the model cannot score so; it can by: {able}")
    return wanted


def _words(asked: PoolingOptions) -> tuple[str, str]:
    words = asked.score_words
    if len(words) != 2 or words[0] == words[1]:
        raise ConfigError(f"--score-words are two different words, got {' '.join(words)}")
    return words[0], words[1]


def _embedding(model: ModelConfig, stated: Mapping[str, Any]) -> PoolingParams:
    own = model.embedding
    pooling = Pooling(own.pooling) if own else Pooling.LAST
    normalizes = own.normalize if own else True
    dimensions = stated.get("dimensions")
    if dimensions is not None and dimensions > model.hidden_size:
        raise ConfigError(
            f"--pooler-config: dimensions is {dimensions}; the model's states have {model.hidden_size}"
        )
    return PoolingParams(
        stated.get("pooling_type", pooling),
        finish=Finish.NORMALIZE if stated.get("normalize", normalizes) else Finish.NONE,
        dimensions=dimensions,
    )


def _classes(model: ModelConfig) -> PoolingParams:
    if model.classifier is None:
        return PoolingParams(head=Head.CLASSES, finish=Finish.SOFTMAX)
    classifier = model.classifier
    return PoolingParams(Pooling(classifier.pooling), Head.CLASSES, _FINISHES[classifier.activation])


def _matryoshka(model: ModelConfig, stated: Mapping[str, Any]) -> tuple[int, ...] | None:
    if "matryoshka_dimensions" in stated:
        return tuple(stated["matryoshka_dimensions"])
    if "is_matryoshka" in stated:
        return () if stated["is_matryoshka"] else None
    return model.matryoshka


def _stated_pooler(given: Mapping[str, Any]) -> dict[str, Any]:
    """The values of --pooler-config, checked."""
    unknown = sorted(given.keys() - set(_POOLER_KEYS))
    if unknown:
        raise ConfigError(
            f"--pooler-config holds {', '.join(unknown)}; it may hold {', '.join(_POOLER_KEYS)}"
        )
    stated = {name: value for name, value in given.items() if value is not None}
    if "pooling_type" in stated:
        kind = stated["pooling_type"]
        if not isinstance(kind, str) or kind.upper() not in _POOLINGS:
            raise ConfigError(f"--pooler-config: pooling_type is one of {', '.join(_POOLINGS)}, got {kind!r}")
        stated["pooling_type"] = _POOLINGS[kind.upper()]
    for name in ("normalize", "is_matryoshka"):
        if not isinstance(stated.get(name, True), bool):
            raise ConfigError(f"--pooler-config: {name} is true or false, got {stated[name]!r}")
    sizes = stated.get("matryoshka_dimensions", [])
    if not isinstance(sizes, list) or not all(
        _is_size(size) for size in (*sizes, stated.get("dimensions", 1))
    ):
        raise ConfigError("--pooler-config: dimensions are whole numbers above 0")
    return stated


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
