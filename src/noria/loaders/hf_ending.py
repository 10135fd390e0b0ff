"""What a decoder ends in, by its class's name and its config.json: logits, a classifier, or its last states alone."""

from __future__ import annotations

from dataclasses import replace

from noria.config.model import ClassifierConfig, ModelConfig
from noria.loaders.fields import Fields

_CLASSIFIER = "ForSequenceClassification"
ENDINGS = ("ForCausalLM", _CLASSIFIER, "Model")


def with_ending(config: ModelConfig, name: str, fields: Fields) -> ModelConfig:
    """config: of the decoder as one that generates. name: of the class. Raises ModelError."""
    classifier = classifier_config(fields) if name.endswith(_CLASSIFIER) else None
    return replace(
        config,
        has_logits=name.endswith("ForCausalLM"),
        classifier=classifier,
        matryoshka=_matryoshka(fields),
    )


def classifier_config(fields: Fields, pooling: str = "last") -> ClassifierConfig:
    """Its labels' names, or what transformers calls nameless ones, and what is made of its outputs."""
    labels = _labels(fields)
    problem = fields.optional_text("problem_type")
    if problem == "regression" or (len(labels) == 1 and _scores_are_outputs(fields)):
        activation = "identity"
    elif problem == "multi_label_classification" or len(labels) == 1:
        activation = "sigmoid"
    else:
        activation = "softmax"
    return ClassifierConfig(labels, activation, pooling)


def _scores_are_outputs(fields: Fields) -> bool:
    """Whether sentence-transformers was told to leave a lone output as it is."""
    table = fields.optional_table("sentence_transformers")
    named = table.optional_text("activation_fn") if table is not None else None
    named = named or fields.optional_text("sbert_ce_default_activation_function")
    return named is not None and named.endswith(".Identity")


def _labels(fields: Fields) -> tuple[str, ...]:
    table = fields.optional_table("id2label")
    if table is None:
        return tuple(f"LABEL_{index}" for index in range(fields.integer("num_labels", 2, high=2**16)))
    names = [table.values.get(str(index)) for index in range(len(table.values))]
    if not names or not all(isinstance(name, str) for name in names):
        raise fields.fault("id2label", "names by the numbers of the outputs, from 0")
    return tuple(str(name) for name in names)


def _matryoshka(fields: Fields) -> tuple[int, ...] | None:
    sizes = fields.values.get("matryoshka_dimensions")
    if sizes is not None:
        if not isinstance(sizes, list) or not all(type(size) is int and size > 0 for size in sizes):
            raise fields.fault("matryoshka_dimensions", "a list of whole numbers above 0")
        return tuple(sizes)
    return () if fields.flag("is_matryoshka", False) else None
