"""Whatever it is given, the library raises an exception with the numbers; it never ends the process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from noria.kernels.native import _native
from support_native_child import run_child

HEADS = (4, 2, 8)


PAST = _native.Reach(_native.Reach.ALL, 0)


def plan_of(heads: tuple[int, int, int] = HEADS) -> tuple[Any, Any]:
    cache = _native.KvCache(_native.CacheShape(1, 2, 8, 8, 2), "float32")
    return _native.Plan(_native.Pool(1), cache), _native.Heads(*heads)


def norm() -> Any:
    return _native.Norm(np.ones(32, np.float32), 1e-5)


def floats(n: int = 32, k: int = 32, **options: bool) -> Any:
    return _native.LinearWeight.of_floats("float32", n, k, **options)


def projection(heads: Any, weights: list[Any] | None = None) -> Any:
    rope = np.zeros((8, 8), np.float32)
    return _native.Qkv([floats(64)] if weights is None else weights, heads, rope, None, None)


@pytest.mark.parametrize(
    "what",
    [
        "weights_take_or_refuse",
        "products_run_or_refuse",
        "stored_floats_are_taken_or_refused",
        "plans_run_or_refuse",
        "samplers_choose_or_refuse",
    ],
)
def test_any_arguments_are_taken_or_refused_with_a_reason(what: str) -> None:
    assert run_child(f"import support_native_fuzz as f; f.{what}(); print('through')").endswith("through\n")


@pytest.mark.parametrize(
    ("n", "k", "message"),
    [
        (2**62, 32, r"\[4611686018427387904, 32\] is beyond any memory"),
        (2**31, 2**31, "beyond any memory"),
        (2**63 - 1, 2**63 - 1, "beyond any memory"),
        (1, 2**63 - 32, "beyond any memory"),
    ],
)
def test_sizes_that_would_overflow_are_refused(n: int, k: int, message: str) -> None:
    for make in (
        lambda: floats(n, k),
        lambda: _native.LinearWeight.of_codes(8, 32, 128, n, k // 32 * 32 or 32),
    ):
        with pytest.raises((ValueError, MemoryError), match=f"{message}|bytes of memory cannot be had"):
            make()


def test_a_cache_that_cannot_be_addressed_is_refused() -> None:
    with pytest.raises(ValueError, match="2147483647 blocks of 8 tokens is beyond what can be addressed"):
        _native.KvCache(_native.CacheShape(1, 2, 8, 8, 2**31 - 1), "float32")


def test_more_threads_than_anyone_wants_are_refused() -> None:
    with pytest.raises(ValueError, match="num_threads is 1025; at least 1, at most 1024"):
        _native.Pool(1025)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_scale_that_is_not_finite_is_refused_with_its_place(bad: float) -> None:
    rows = np.zeros((3, 3 * 34), np.uint8)
    rows[1, 68:70] = np.array([bad], np.float16).view(np.uint8)
    weight = _native.LinearWeight.of_blocks("Q8_0", 8, 96)
    with pytest.raises(ValueError, match=f"the scale of group 2 in row 1 is {bad}"):
        weight.put_blocks(4, "Q8_0", rows)


@pytest.mark.parametrize(
    ("heads", "message"),
    [
        ((4, 0, 8), "the cache holds 2 heads of 8, the layer has 0 of 8"),
        ((0, 2, 8), "0 query heads cannot share 2 key/value heads"),
        ((-4, 2, 8), "-4 query heads cannot share 2"),
        ((5, 2, 8), "5 query heads cannot share 2"),
        ((2**31 - 2, 2, 8), "2147483646 heads of 8 are more than 16777216"),
    ],
)
def test_heads_that_no_attention_serves_are_refused(heads: tuple[int, int, int], message: str) -> None:
    plan, given = plan_of(heads)
    x = plan.embed(floats(8))
    for record in (
        lambda: plan.attend(x, given, 1.0, PAST, 0),
        lambda: plan.norm_qkv(x, norm(), projection(given), 0),
    ):
        with pytest.raises(ValueError, match=message):
            record()


@pytest.mark.parametrize(
    ("reach", "layer", "message"),
    [
        (_native.Reach(-1, 0), 0, "a reach of -1 tokens back and 0 ahead"),
        (_native.Reach(0, -1), 0, "a reach of 0 tokens back and -1 ahead"),
        (PAST, 1, "layer 1 of a cache of 1"),
    ],
)
def test_attention_outside_the_cache_is_refused(reach: Any, layer: int, message: str) -> None:
    plan, heads = plan_of()
    q = plan.norm_qkv(plan.embed(floats(8)), norm(), projection(heads), 0)
    with pytest.raises(ValueError, match=message):
        plan.attend(q, heads, 1.0, reach, layer)


def test_ops_that_do_not_fit_each_other_are_refused() -> None:
    plan, heads = plan_of()
    x = plan.embed(floats(8))
    with pytest.raises(ValueError, match="buffer 0 cannot be added to while it is read"):
        plan.linear_add(x, floats(), x)
    with pytest.raises(ValueError, match="gate over up of 64 rows where a plain weight belongs"):
        plan.norm_qkv(x, norm(), projection(heads, [floats(64, glu=True)]), 0)
    with pytest.raises(ValueError, match="a projection's weight is None"):
        projection(heads, [None])
    with pytest.raises(ValueError, match="gate over up of 64 rows where a plain weight belongs"):
        plan.norm_activate(x, None, floats(64, glu=True), "gelu")
    with pytest.raises(ValueError, match=r"an activation is silu, .* not tanh"):
        plan.norm_activate(x, None, floats(), "tanh")
    with pytest.raises(ValueError, match="a norm of 32 numbers over rows of 64"):
        plan.normalise(plan.norm_activate(x, None, floats(64), "relu"), norm())
    plan.lm_head(x, norm(), floats(8))
    with pytest.raises(ValueError, match="logits of 8 numbers are given already"):
        plan.lm_head(x, norm(), floats(9))
    plan.hidden(x, None)
    with pytest.raises(ValueError, match="hidden states of 32 numbers are given already"):
        plan.hidden(x, norm())
    with pytest.raises(ValueError, match="buffer 9 was never made"):
        plan.hidden(9, None)


@pytest.mark.parametrize(
    ("positions", "types", "message"),
    [
        ((4, 16), (2, 32), r"a table of \[4, 16\] added to rows of 32"),
        ((4, 32), (2, 64), r"a table of \[2, 64\] added to rows of 32"),
        ((4, 32), (0, 32), r"a table of \[0, 32\] added to rows of 32"),
    ],
)
def test_tables_that_cannot_be_added_to_an_embedding_are_refused(
    positions: tuple[int, int], types: tuple[int, int], message: str
) -> None:
    added = _native.EmbeddingSum(np.zeros(positions, np.float32), np.zeros(types, np.float32), norm())
    with pytest.raises(ValueError, match=message):
        plan_of()[0].embed(floats(8), added)


def test_a_beta_of_another_width_is_refused() -> None:
    odd = _native.Norm(np.ones(32, np.float32), 1e-5, np.zeros(31, np.float32))
    plan, _ = plan_of()
    with pytest.raises(ValueError, match="a norm of 31 numbers over rows of 32"):
        plan.normalise(plan.embed(floats(8)), odd)
