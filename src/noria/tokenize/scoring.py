"""How well texts fit each other: what is read for it, and what its numbers say. For the server and the offline API."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from noria.config.abilities import Abilities, ScoreMethod, Task
from noria.config.errors import RequestError
from noria.config.pooling import Finish, PoolingParams
from noria.tokenize.judging import judging_messages, judging_options, word_ids
from noria.tokenize.tokenizer import Tokenizer

if TYPE_CHECKING:
    import numpy as np

Pair = tuple[str, str]  # a query and a document
Prompts = tuple[list[tuple[int, ...]], list[PoolingParams]]  # token ids of each, and what to make of it


class Scoring(Protocol):
    """The scores of some pairs."""

    @property
    def is_rendered(self) -> bool:
        """Whether their texts go through the chat template."""
        ...

    @property
    def texts(self) -> Sequence[str]:
        """All that is read."""
        ...

    def prompts(self, tokenizer: Tokenizer, max_tokens: int | None) -> Prompts:
        """max_tokens: to which texts are cut that come to more. Raises RequestError."""
        ...

    def scores(self, made: Sequence[np.ndarray]) -> list[float]:
        """One for each pair. made: of each prompt."""
        ...


def scoring_of(abilities: Abilities, pairs: Sequence[Pair], instruction: str | None) -> Scoring:
    """instruction: what makes texts fit, to a chat model. Raises RequestError for what the model cannot do."""
    abilities.need(Task.SCORE)
    if instruction is not None and abilities.score_method is not ScoreMethod.TOKENS:
        raise RequestError("instruction is for chat models; this one scores without words", "instruction")
    if abilities.score_method is ScoreMethod.SIMILARITY:
        return _Similarity(pairs, abilities.embedding)
    if abilities.score_method is ScoreMethod.CLASSIFIER:
        return _Classifier(pairs, abilities.classes)
    return _Words(pairs, abilities.score_words, instruction)


def pairs_of(queries: Sequence[str], documents: Sequence[str]) -> list[Pair]:
    """One query with each document, or as many queries as documents. Raises RequestError."""
    if len(queries) == 1:
        queries = [*queries] * len(documents)
    if len(queries) != len(documents):
        raise RequestError(
            f"there are {len(queries)} queries and {len(documents)} documents; one query goes with any number of "
            "documents, several with as many",
            "queries",
        )
    return list(zip(queries, documents, strict=True))


def document_texts(documents: Any) -> list[str]:
    """Of texts, some of them in objects with a `text`. Raises RequestError."""
    if isinstance(documents, list):
        documents = [one.get("text") if isinstance(one, dict) else one for one in documents]
    return checked_texts(documents, "documents")


def checked_texts(value: Any, name: str) -> list[str]:
    """Raises RequestError for anything but a list of texts, none of them empty."""
    if not isinstance(value, list) or not value:
        raise RequestError(f"{name} must hold at least one text", name)
    for number, one in enumerate(value, 1):
        if not isinstance(one, str) or not one:
            raise RequestError(f"{name} must hold texts that are not empty; number {number} is none", name)
    return value


def check_top_n(top_n: int | None) -> None:
    """Raises RequestError."""
    if top_n is not None and top_n < 0:
        raise RequestError(f"top_n must be at least 0, got {top_n}", "top_n")


def best_first(scores: Sequence[float], top_n: int | None) -> list[int]:
    """The places of the best top_n scores, of all where that is None or 0. Of equal ones the first comes first."""
    order = sorted(range(len(scores)), key=lambda index: (-scores[index], index))
    return order[: top_n or None]


def shortened(tokenizer: Tokenizer, texts: Sequence[str], most: int) -> list[str]:
    """The beginnings of texts, of so many tokens at most. Raises RequestError."""
    if most < 1:
        raise RequestError(f"max_tokens_per_doc must be at least 1, got {most}", "max_tokens_per_doc")
    encoded = [tokenizer.encode(text, add_special_tokens=False) for text in texts]
    return [
        text if len(ids) <= most else tokenizer.decode(ids[:most], skip_special_tokens=False)
        for text, ids in zip(texts, encoded, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class _Similarity:
    """The cosine of the vectors of both. Each text is read once, however many pairs it is in."""

    pairs: Sequence[Pair]
    embedding: PoolingParams
    is_rendered: bool = False

    @property
    def texts(self) -> list[str]:
        return list(dict.fromkeys(text for pair in self.pairs for text in pair))

    def prompts(self, tokenizer: Tokenizer, max_tokens: int | None) -> Prompts:
        def encoded(text: str) -> list[int]:
            return tokenizer.encode(text) if max_tokens is None else tokenizer.encode_within(text, max_tokens)

        read = [tuple(encoded(text)) for text in self.texts]
        return read, [replace(self.embedding, finish=Finish.NORMALIZE)] * len(read)

    def scores(self, made: Sequence[np.ndarray]) -> list[float]:
        vectors = dict(zip(self.texts, made, strict=True))
        return [float(vectors[first] @ vectors[second]) for first, second in self.pairs]


@dataclass(frozen=True, slots=True)
class _Classifier:
    """What a classifier says of both together."""

    pairs: Sequence[Pair]
    classes: PoolingParams
    is_rendered: bool = False

    @property
    def texts(self) -> list[str]:
        return [text for pair in self.pairs for text in pair]

    def prompts(self, tokenizer: Tokenizer, max_tokens: int | None) -> Prompts:
        encoded = [tokenizer.encode_pair(*pair, max_tokens) for pair in self.pairs]
        params = [replace(self.classes, num_first=num_first) for _, num_first in encoded]
        return [ids for ids, _ in encoded], params

    def scores(self, made: Sequence[np.ndarray]) -> list[float]:
        return [float(one[0]) for one in made]


@dataclass(frozen=True, slots=True)
class _Words:
    """How likely a chat model is to say that they fit."""

    pairs: Sequence[Pair]
    words: tuple[str, str]
    instruction: str | None
    is_rendered: bool = True

    @property
    def texts(self) -> list[str]:
        return [text for pair in self.pairs for text in pair]

    def prompts(self, tokenizer: Tokenizer, max_tokens: int | None) -> Prompts:
        params = PoolingParams(**word_ids(tokenizer, self.words))
        chats = [judging_messages(*pair, self.words, self.instruction) for pair in self.pairs]
        read = [tuple(tokenizer.encode_chat(chat, judging_options())) for chat in chats]
        longest = max(map(len, read), default=0)
        if max_tokens is not None and longest > max_tokens:
            raise RequestError(
                f"a chat model is asked at the end of its prompt, so one of {longest} tokens cannot be cut to "
                f"{max_tokens}: send shorter documents, or have /rerank cut them by `max_tokens_per_doc`",
                "truncate_prompt_tokens",
            )
        return read, [params] * len(read)

    def scores(self, made: Sequence[np.ndarray]) -> list[float]:
        return [float(one[0]) for one in made]
