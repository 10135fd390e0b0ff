"""Looking into a native plan: what each op wrote, in numbers, whatever form it has in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from noria.inspecting.comparing import differences, first_beyond
from noria.inspecting.traces import Trace, one_sequence, trace
from noria.kernels.ops import BackendOptions
from noria.kernels.select import load_backend
from noria.models.build import build_model, cache_shape
from noria.models.stored import StoredModel
from support_models import random_file, small_config

TOKENS = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]
CONFIG = small_config(hidden_size=64, intermediate_size=96, num_heads=8)


def options(backend: str, quantization: str = "none") -> BackendOptions:
    kv_dtype = "float32"
    return BackendOptions("float32", "cpu", 2, cache_shape(CONFIG, 8, 4), quantization, kv_dtype)


def traced(backend: str, quantization: str = "none") -> Trace:
    made = load_backend(backend)(options(backend, quantization))
    return trace(StoredModel(random_file(CONFIG)), backend, made, TOKENS, 8)


def test_a_watched_step_writes_the_logits_of_an_unwatched_one() -> None:
    made = load_backend("native")(options("native"))
    model = build_model(StoredModel(random_file(CONFIG)), made, len(TOKENS))
    logits = model.forward(one_sequence(TOKENS, 8)).logits
    steps = {step.label: step.values for step in traced("native").steps}
    assert np.array_equal(steps["lm_head (embedding)"], logits)


def test_native_and_reference_ops_agree_op_by_op_in_float32() -> None:
    ours, theirs = traced("native"), traced("torch")
    assert [step.label for step in ours.steps] == [step.label for step in theirs.steps]
    found = differences(ours, theirs)
    assert first_beyond(found, 1e-5) is None, found
    assert len(found) == 1 + 2 * 5 + 2


def test_what_is_only_there_in_codes_is_read_back_as_numbers() -> None:
    found = differences(traced("native", "w8"), traced("torch"))
    glu = next(one for one in found if one.label == "layers.0 norm_glu (gate, up)")
    assert 1e-4 < glu.relative < 0.03
    first = first_beyond(found, 1e-4)
    assert first is not None and first.label == "embed (embedding)"


class Watched:
    """A model's plan and a batch for it. unwatched: the logits that a step gives."""

    def __init__(self) -> None:
        made = load_backend("native")(options("native"))
        self.model = build_model(StoredModel(random_file(CONFIG)), made, len(TOKENS))
        self.plan: Any = self.model._program._plan  # type: ignore[attr-defined]
        self.batch = one_sequence(TOKENS, 8)
        self.unwatched = self.model.forward(self.batch).logits
        self.outputs = (
            np.empty((len(TOKENS), CONFIG.vocab_size), np.float32),
            np.empty((len(TOKENS), CONFIG.hidden_size), np.float32),
        )

    def watch(self, after: Callable[[int], object]) -> None:
        self.plan.watch(self.batch, *self.outputs, after)

    def run(self) -> None:
        self.plan.run(self.batch, *self.outputs)

    def is_whole(self) -> bool:
        return np.array_equal(self.model.forward(self.batch).logits, self.unwatched)


def test_what_a_watcher_raises_ends_the_step_and_the_next_one_is_whole() -> None:
    watched = Watched()

    def after(index: int) -> None:
        raise KeyError(index)

    with pytest.raises(KeyError):
        watched.watch(after)
    with pytest.raises(ValueError, match="no step is watched"):
        watched.plan.read(0, np.empty((len(TOKENS), CONFIG.hidden_size), np.float32))
    assert watched.is_whole()


@pytest.mark.parametrize("is_elsewhere", [False, True])
@pytest.mark.parametrize("what", ["run", "watch", "op_times"])
def test_what_would_wait_for_the_end_of_a_watched_step_is_refused_meanwhile(
    what: str, is_elsewhere: bool
) -> None:
    watched = Watched()
    calls: dict[str, Callable[[], object]] = {
        "run": watched.run,
        "watch": lambda: watched.watch(lambda index: None),
        "op_times": lambda: watched.plan.op_times,
    }
    told: list[str] = []

    def attempt() -> None:
        with pytest.raises(RuntimeError) as refused:
            calls[what]()
        told.append(str(refused.value))

    def after(index: int) -> None:
        if is_elsewhere:
            thread = threading.Thread(target=attempt)
            thread.start()
            thread.join()
        else:
            attempt()

    watched.watch(after)
    assert len(told) == 1 + 5 * CONFIG.num_layers + 2
    asked = "the times of a step is" if what == "op_times" else "a step is"
    assert set(told) == {
        f"{asked} asked for while a step of {len(TOKENS)} tokens is watched; ask when that has ended"
    }
    assert watched.is_whole()
