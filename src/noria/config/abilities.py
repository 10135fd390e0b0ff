"""What can be asked of a model, and how that is made where a request does not say."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from noria.config.errors import RequestError
from noria.config.pooling import Finish, Head, PoolingParams


class Task(str, Enum):
    GENERATE = "generate"  # text
    EMBED = "embed"  # a vector for a text
    TOKEN_EMBED = "token_embed"  # a vector for each token
    CLASSIFY = "classify"  # a number for each label
    TOKEN_CLASSIFY = "token_classify"  # the same for each token
    SCORE = "score"  # how well two texts fit each other


class ScoreMethod(str, Enum):
    """How two texts are compared."""

    CLASSIFIER = "classifier"  # read together, by a classifier of one label
    SIMILARITY = "similarity"  # each by itself: the cosine of their vectors
    TOKENS = "tokens"  # read together, by how likely one word is than another as the answer


# What an embedding is without anything said.
PLAIN_EMBEDDING = PoolingParams(finish=Finish.NORMALIZE)
PLAIN_CLASSES = PoolingParams(head=Head.CLASSES, finish=Finish.SOFTMAX)


@dataclass(frozen=True, slots=True)
class Abilities:
    """embedding, classes: how those are made. labels: what the classifier tells apart, by output.

    score_method, score_words: how texts are scored; of the words the first says that they fit.
    embedding_size: numbers of an embedding. matryoshka: to how many of them it may be cut; empty: to any number;
    None: to none, since the model was not made for it.
    """

    tasks: tuple[Task, ...] = (Task.GENERATE, Task.EMBED, Task.TOKEN_EMBED, Task.SCORE)
    embedding: PoolingParams = PLAIN_EMBEDDING
    classes: PoolingParams = PLAIN_CLASSES
    labels: tuple[str, ...] = ()
    score_method: ScoreMethod = ScoreMethod.TOKENS
    score_words: tuple[str, str] = ("yes", "no")
    embedding_size: int = 0
    matryoshka: tuple[int, ...] | None = None

    def need(self, task: Task) -> None:
        """Raises RequestError where the model cannot do that, and says what it can."""
        if task not in self.tasks:
            told = ", ".join(one.value for one in self.tasks)
            raise RequestError(f"this model does not {task.value}; its tasks are: {told}", "model")

    def check_dimensions(self, dimensions: int | None) -> None:
        """Raises RequestError for a size to which embeddings cannot be cut."""
        if dimensions is None:
            return
        if self.matryoshka is None:
            raise RequestError(
                "the embeddings of this model cannot be cut: it was not trained so that their first numbers "
                "suffice (matryoshka). Leave `dimensions` out; who knows better starts the server with "
                "--pooler-config '{\"is_matryoshka\": true}'",
                "dimensions",
            )
        if self.matryoshka and dimensions not in self.matryoshka:
            sizes = ", ".join(map(str, self.matryoshka))
            raise RequestError(
                f"dimensions must be one of {sizes} for this model, got {dimensions}", "dimensions"
            )
        if not 1 <= dimensions <= self.embedding_size:
            raise RequestError(
                f"dimensions must be at least 1 and at most {self.embedding_size}, got {dimensions}",
                "dimensions",
            )
