"""A model's ops one by one: which ran, on which weights, and what each wrote. Not for serving."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from typing import Any

import numpy as np

from noria.kernels.ops import Buffer, EmbeddingSum, Norm, Ops, QkvProjection, Weight


@dataclass(frozen=True, slots=True)
class OpCall:
    """One op of a forward.

    handles: of the weights it uses, a norm's first. layer: of the cache, where it has to do with one.
    reads_from: the place, in the forward, of the op that wrote its first input; None of the first op.
    width: how many of the numbers in a row it writes are its result (a projection's buffer may hold keys and values
    behind the queries); None: all.
    """

    name: str
    handles: tuple[Weight, ...]
    layer: int | None
    reads_from: int | None
    width: int | None


Saw = Callable[[OpCall, np.ndarray], None]  # an op, and what it wrote: rows [T, width] float32


class ObservedOps:
    """A kernels.ops.Ops that tells of every call.

    told: the call, and the buffer that it wrote; None of ops that give what the model gives.
    """

    def __init__(self, ops: Ops, told: Callable[[OpCall, Buffer], None]) -> None:
        self._ops = ops
        self._told = told
        self._num_calls = 0
        self._writers: dict[int, int] = {}  # by identity of the buffer, which op wrote it last
        self._buffers: list[Buffer] = []  # keeps identities unique

    def __getattr__(self, name: str) -> Callable[..., Any]:
        op = getattr(self._ops, name)
        named = signature(op)

        def call(*arguments: Any, **more: Any) -> Any:
            stated = named.bind(*arguments, **more).arguments
            result = op(**stated)
            written = stated.get("x") if result is None else result
            self._note(name, stated, written)
            return result

        return call

    def _note(self, name: str, stated: dict[str, Any], written: Buffer) -> None:
        first = next(iter(stated.values()))
        projection = next((one for one in stated.values() if isinstance(one, QkvProjection)), None)
        call = OpCall(
            name,
            tuple(handle for one in stated.values() for handle in _handles(one)),
            stated.get("layer"),
            self._writers.get(id(first)),
            None if projection is None else projection.heads.query_size,
        )
        self._writers[id(written)] = self._num_calls
        self._buffers.append(written)
        self._num_calls += 1
        self._told(call, written)


def _handles(argument: Any) -> tuple[Weight, ...]:
    if argument is None:
        return ()
    if isinstance(argument, EmbeddingSum):
        return (argument.positions, argument.token_types, *_handles(argument.norm))
    if isinstance(argument, Norm):
        return (argument.gamma,)
    if isinstance(argument, QkvProjection):
        return (argument.weight,)
    return (argument,)
