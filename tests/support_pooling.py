"""A scripted engine that pools, and servers in front of it."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from noria.config.abilities import Abilities, Task
from noria.config.pooling import Finish, Head, Pooling, PoolingParams
from noria.core.outputs import Delta, FinishReason
from noria.core.plan import Numbers
from noria.engine.messages import PoolRequest
from support_server import FakeEngine, Server, served_model, serving, tokenizer

LONG = "The water wheel turns and turns and turns " * 12
ALL = Abilities(
    tasks=tuple(Task),
    classes=PoolingParams(Pooling.CLS, Head.CLASSES, Finish.SOFTMAX),
    labels=("bad", "good"),
    score_words=("a", "b"),
    embedding_size=4,
    matryoshka=(),
)


def numbers(*rows: float, shape: tuple[int, ...] | None = None) -> Numbers:
    return Numbers(shape or (len(rows),), array("f", rows).tobytes())


def made_of(request: PoolRequest) -> list[Delta]:
    """A state that tells the prompt's first id and its length; classes of which the second is the likelier."""
    ids, params = request.prompt_token_ids, request.params
    if params.head is not Head.STATE:
        made = numbers(0.25, 0.75)
    elif params.pooling is Pooling.ALL:
        made = numbers(*map(float, ids), shape=(len(ids), 1))
    else:
        made = numbers(*[float(ids[0]), float(len(ids)), 0.5, 0.0][: params.dimensions])
    return [Delta(request.request_id, pooled=made, finish=FinishReason.STOP, num_cached_tokens=1)]


@contextmanager
def reading(abilities: Abilities = ALL, **options: Any) -> Iterator[Server]:
    with serving(FakeEngine(made_of), model=served_model(abilities=abilities), **options) as server:
        yield server


def ids(text: str) -> list[int]:
    return tokenizer().encode(text)


def prompts(server: Server) -> list[list[int]]:
    return [list(request.prompt_token_ids) for request in server.engine.submitted]


def refused(response: httpx.Response, message: str, param: str | None) -> None:
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert message in error["message"]
    assert error["param"] == param
