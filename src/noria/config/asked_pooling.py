"""What a user may ask of prompts that are read and not continued."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from noria.config.option import AUTO, MAPPING, TEXT, Several, check_values, option


@dataclass(frozen=True, slots=True)
class PoolingOptions:
    """Embeddings, classes and scores."""

    TITLE: ClassVar[str] = "Pooling"

    runner: str = option(
        AUTO,
        "What the model is served for. generate: text; pooling: embeddings, classes and scores, and no text; auto: "
        "whatever it can, save that a checkpoint made for embeddings or for classes generates nothing.",
        choices=(AUTO, "generate", "pooling"),
    )
    convert: str = option(
        AUTO,
        "What a model is used as beyond what it was made for. embed: its last hidden states are embeddings; none: "
        "nothing; classify: nothing else than its classifier, which it must have; auto: as embed.",
        choices=(AUTO, "none", "embed", "classify"),
    )
    pooler_config: Mapping[str, Any] | None = option(
        None,
        "How hidden states become an embedding, stated over the checkpoint's own word. Keys: pooling_type (LAST, MEAN "
        "or CLS), normalize (true or false), dimensions (how many numbers are kept where a request does not say), "
        "is_matryoshka (whether requests may ask for fewer) and matryoshka_dimensions (for which numbers alone).",
        MAPPING,
        aliases=("--override-pooler-config",),
        default_words="as the checkpoint says; where it does not, the last token's, normalised",
    )
    score_method: str = option(
        AUTO,
        "How /score and /rerank compare two texts. classifier: the model's classifier reads them together; similarity: "
        "the cosine of their embeddings; tokens: a chat model is asked whether they fit, and by how likely it says "
        "the first of score_words. auto: classifier where there is one of one label, similarity for checkpoints made "
        "for embeddings, else tokens.",
        choices=(AUTO, "classifier", "similarity", "tokens"),
    )
    score_words: tuple[str, ...] = option(
        ("yes", "no"),
        "The two words that a chat model is asked to choose between, the one that says that texts fit first. Each has "
        "to be one token of the model's.",
        TEXT,
        several=Several.SPREAD,
        default_words="yes no",
    )

    def __post_init__(self) -> None:
        check_values(self)
