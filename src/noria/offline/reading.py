"""Prompts that are read and not continued: embeddings, classes and scores of the offline API."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from queue import SimpleQueue
from typing import TYPE_CHECKING

from noria.config.abilities import Abilities, Task
from noria.config.errors import EngineError
from noria.config.pooling import PoolingParams
from noria.core.outputs import Delta, FinishReason
from noria.core.plan import Numbers
from noria.engine.client import EngineClient
from noria.engine.messages import PoolRequest
from noria.offline.prompts import Prompt, PromptType, as_list, each, read_prompt
from noria.tokenize.scoring import (
    Pair,
    best_first,
    check_top_n,
    checked_texts,
    document_texts,
    pairs_of,
    scoring_of,
    shortened,
)
from noria.tokenize.tokenizer import Tokenizer

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class EmbeddingOutput:
    """embedding: [n] float32. num_cached_tokens: prompt tokens that came from the prefix cache."""

    prompt_token_ids: tuple[int, ...]
    embedding: np.ndarray
    num_cached_tokens: int


@dataclass(frozen=True)
class ClassificationOutput:
    """label: the likeliest. probs: of each label, in the order of the model's own."""

    prompt_token_ids: tuple[int, ...]
    label: str
    probs: np.ndarray


@dataclass(frozen=True)
class ScoreOutput:
    """How well a query and a document fit each other; higher is better."""

    score: float


@dataclass(frozen=True)
class RerankOutput:
    """document: the text whose place among those given is index. relevance_score: higher is better."""

    index: int
    relevance_score: float
    document: str


@dataclass(frozen=True)
class RerankOptions:
    """As `LLM.rerank` takes them."""

    top_n: int | None = None
    instruction: str | None = None
    truncate_prompt_tokens: int | None = None
    max_tokens_per_doc: int | None = None


class Reader:
    """Reads prompts with a running engine. Raises RequestError for what the model cannot do or take."""

    _names = count()

    def __init__(self, client: EngineClient, tokenizer: Tokenizer, abilities: Abilities) -> None:
        self.abilities = abilities
        self._client = client
        self._tokenizer = tokenizer

    def embed(
        self,
        prompts: PromptType | Sequence[PromptType],
        dimensions: int | None,
        most: int | None,
        shown: bool,
    ) -> list[EmbeddingOutput]:
        self.abilities.need(Task.EMBED)
        self.abilities.check_dimensions(dimensions)
        params = self.abilities.embedding
        read = self._prompts(prompts, most)
        made = self._run(
            read, [replace(params, dimensions=dimensions or params.dimensions)] * len(read), shown
        )
        return [
            EmbeddingOutput(ids, _array(delta), delta.num_cached_tokens)
            for ids, delta in zip(read, made, strict=True)
        ]

    def classify(
        self, prompts: PromptType | Sequence[PromptType], most: int | None, shown: bool
    ) -> list[ClassificationOutput]:
        self.abilities.need(Task.CLASSIFY)
        read = self._prompts(prompts, most)
        arrays = [_array(delta) for delta in self._run(read, [self.abilities.classes] * len(read), shown)]
        labels = self.abilities.labels
        return [
            ClassificationOutput(ids, labels[int(probs.argmax())], probs)
            for ids, probs in zip(read, arrays, strict=True)
        ]

    def score(
        self, pairs: Sequence[Pair], instruction: str | None, most: int | None, shown: bool
    ) -> list[ScoreOutput]:
        scoring = scoring_of(self.abilities, pairs, instruction)
        made = self._run(*scoring.prompts(self._tokenizer, most), shown)
        return [ScoreOutput(score) for score in scoring.scores([_array(delta) for delta in made])]

    def rerank(
        self, query: str, documents: Sequence[str | Mapping[str, str]], asked: RerankOptions, shown: bool
    ) -> list[RerankOutput]:
        (query,) = checked_texts([query], "query")
        whole = document_texts(documents if isinstance(documents, str) else list(documents))
        check_top_n(asked.top_n)
        most = asked.max_tokens_per_doc
        read = whole if most is None else shortened(self._tokenizer, whole, most)
        pairs = pairs_of([query], read)
        outputs = self.score(pairs, asked.instruction, asked.truncate_prompt_tokens, shown)
        scores = [output.score for output in outputs]
        best = best_first(scores, asked.top_n)
        return [RerankOutput(index, scores[index], whole[index]) for index in best]

    def _prompts(self, prompts: PromptType | Sequence[PromptType], most: int | None) -> list[tuple[int, ...]]:
        def read(prompt: PromptType) -> tuple[int, ...]:
            if isinstance(prompt, str) and most is not None:
                return tuple(self._tokenizer.encode_within(prompt, most))
            found: Prompt = read_prompt(prompt, self._tokenizer)
            return found.token_ids[:most]

        return each(as_list(prompts), read)

    def _run(
        self, prompts: Sequence[tuple[int, ...]], params: Sequence[PoolingParams], shown: bool
    ) -> list[Delta]:
        """The last delta of each. Raises EngineError for one that failed."""
        news: SimpleQueue[Sequence[Delta]] = SimpleQueue()
        names = [f"reading-{next(self._names)}" for _ in prompts]
        lengths = dict(zip(names, map(len, prompts), strict=True))
        requests = [PoolRequest(*entry) for entry in zip(names, prompts, params, strict=True)]
        self._client.submit(requests, news.put).result()
        made: dict[str, Delta] = {}
        try:
            with _bar(len(names), shown) as finish:
                while len(made) < len(names):
                    fresh = {delta.request_id: _checked(delta) for delta in news.get()}
                    finish(sum(lengths[name] for name in fresh), len(fresh))
                    made |= fresh
        finally:
            self._client.cancel([name for name in names if name not in made])
        return [made[name] for name in names]


def _checked(delta: Delta) -> Delta:
    if delta.finish is not FinishReason.STOP:
        how = delta.finish.value if delta.finish else "not"
        raise EngineError(delta.error or f"a prompt was not read to its end: {how}")
    return delta


def _array(delta: Delta) -> np.ndarray:
    import numpy as np

    made = delta.pooled
    assert isinstance(made, Numbers), f"{delta.request_id} ended, and nothing was made of it"
    return np.frombuffer(made.data, "<f4").reshape(made.shape)


@contextmanager
def _bar(num_prompts: int, shown: bool) -> Iterator[Callable[[int, int], None]]:
    """Takes (tokens, prompts) that were read. The bar is imported when one is shown."""
    if not shown:
        yield lambda num_tokens, num_read: None
        return
    from noria.offline.bars import ReadingBar

    with ReadingBar(num_prompts) as bar:
        yield bar.finish
