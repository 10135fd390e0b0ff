"""A prompt run op by op on a backend, with what each op wrote."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from noria.inspecting.labels import Namebook, label
from noria.kernels.batch import Batch
from noria.kernels.observing import OpCall
from noria.kernels.ops import Backend
from noria.models.registry import architecture, blamed
from noria.models.rope import rope_table
from noria.models.stored import StoredModel


@dataclass(frozen=True, slots=True)
class Step:
    """One op. tensors: those it uses, by logical name. values: what it wrote, float32 [T, width]."""

    label: str
    tensors: tuple[str, ...]
    reads_from: int | None
    values: np.ndarray


@dataclass(slots=True)
class Trace:
    """backend: whose ops they are. steps: in the order of the forward."""

    backend: str
    steps: list[Step] = field(default_factory=list)


def trace(stored: StoredModel, name: str, backend: Backend, token_ids: list[int], block_size: int) -> Trace:
    """name: the backend's, made for a cache that holds the tokens. Loads the model anew."""
    config = stored.config
    book = Namebook(stored, backend.packer)
    result = Trace(name)

    def saw(call: OpCall, values: np.ndarray) -> None:
        names = book.names_of(call)
        result.steps.append(Step(label(call, names), names, call.reads_from, values))

    with blamed(config):
        rope = book.pack_table(rope_table(config, len(token_ids)))
        model = architecture(config)(config, book, book, rope)
        batch = one_sequence(token_ids, block_size)
        if not config.has_logits:
            batch = replace(batch, logit_rows=batch.logit_rows[:0])
        backend.watch(model.forward, batch, saw)
    return result


def one_sequence(token_ids: list[int], block_size: int) -> Batch:
    """The batch of a whole prompt whose every row is wanted; its blocks are the cache's first."""
    count = len(token_ids)
    places = np.arange(count, dtype=np.int32)
    return Batch(
        token_ids=np.array(token_ids, np.int32),
        token_types=np.zeros(count, np.int32),
        positions=places,
        slots=places.copy(),
        query_starts=np.array([0, count], np.int32),
        context_lens=np.array([count], np.int32),
        block_tables=np.arange(-(-count // block_size), dtype=np.int32)[None],
        logit_rows=places.copy(),
        hidden_rows=places.copy(),
    )
