"""Calls of the native bindings with arguments of every kind, most of them wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from noria.kernels.batch import Batch
from noria.kernels.native import _native

REFUSALS = (ValueError, TypeError, IndexError, MemoryError, RuntimeError, OverflowError)

sizes = st.sampled_from([-1, 0, 1, 2, 3, 8, 16, 31, 32, 64, 65, 2**15, 2**31 - 1, 2**31, 2**62, 2**63 - 1])
small = st.integers(-2, 9)
flags = st.booleans()
dtypes = st.sampled_from([np.float32, np.float64, np.int8, np.uint8, np.int32, np.int64])
block_types = st.sampled_from(["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K", "Q3_K", ""])


@st.composite
def arrays(draw: st.DrawFn) -> Any:
    """One or two dimensions, any dtype, whole or strided, numbers that are not finite among them; or no array."""
    shape = draw(st.lists(st.sampled_from([0, 1, 2, 3, 18, 32, 34, 64]), min_size=1, max_size=2))
    array = np.random.default_rng(draw(st.integers(0, 99))).integers(-3, 300, shape).astype(draw(dtypes))
    if array.size and array.dtype.kind == "f":
        array.flat[0] = draw(st.sampled_from([1.0, np.nan, np.inf, 1e38]))
    return draw(st.sampled_from([array, array, array, array[::2], array.T, None, "array", 1]))


def attempt(call: Any, *arguments: Any, **named: Any) -> Any:
    """-> what it returns, or None where it refuses; a refusal says why."""
    try:
        return call(*arguments, **named)
    except REFUSALS as error:
        assert str(error), f"{type(error).__name__} says nothing"
        return None


@st.composite
def weights(draw: st.DrawFn) -> Any:
    form = draw(st.sampled_from(["floats", "blocks", "codes"]))
    make = _native.LinearWeight
    if form == "floats":
        dtype = draw(st.sampled_from(["float32", "bfloat16", "int7"]))
        return attempt(make.of_floats, dtype, draw(sizes), draw(sizes), glu=draw(flags), bias=draw(flags))
    if form == "blocks":
        return attempt(
            make.of_blocks, draw(block_types), draw(sizes), draw(sizes), glu=draw(flags), bias=draw(flags)
        )
    group, zero = draw(st.sampled_from([0, 16, 32, -32])), draw(st.sampled_from([0, 3, 8, 128, 256]))
    bits = draw(st.sampled_from([0, 4, 6, 8, 9]))
    return attempt(make.of_codes, bits, group, zero, draw(sizes), draw(sizes), glu=draw(flags))


@settings(max_examples=400, deadline=None)
@given(weights(), sizes, arrays(), arrays(), arrays(), block_types, flags)
def weights_take_or_refuse(
    weight: Any, first: int, a: Any, b: Any, c: Any, block_type: str, flag: bool
) -> None:
    if weight is None:
        return
    attempt(weight.put_floats, first, a)
    attempt(weight.put_blocks, first, block_type, a)
    attempt(weight.put_codes, first, a, b, c)
    attempt(weight.put_bias, a)
    if weight.k <= 64:
        attempt(weight.read, first, 2)
    if weight.n <= 64 and weight.k <= 2**15:
        attempt(_native.multiply, weight, a, b, add=flag, begin=0, end=weight.num_panels, num_threads=1)
        attempt(_native.multiply, weight, a, b, add=flag, begin=first, end=2, num_threads=first)
        attempt(_native.multiply_gated, weight, a, b, gate="silu", num_threads=1)


class Recording:
    """A plan over small parts, the indices of its buffers as they come."""

    def __init__(self, heads: tuple[int, int, int], shape: tuple[int, ...]) -> None:
        self.heads = attempt(_native.Heads, *heads)
        self.cache = attempt(lambda: _native.KvCache(_native.CacheShape(*shape), "float32"))
        self.plan = None if self.cache is None else _native.Plan(_native.Pool(1), self.cache)
        self.norm = _native.Norm(np.ones(32, np.float32), 1e-5)

    def add(self, op: str, numbers: list[int], weight: Any) -> None:
        plan, (a, b, c, d) = self.plan, numbers
        rope = np.zeros((8, max(0, c) * 2), np.float32)
        calls: dict[str, Any] = {
            "embed": lambda: plan.embed(weight),
            "norm_qkv": lambda: plan.norm_qkv(
                a, self.norm, _native.Qkv([weight], self.heads, rope, None, None), b
            ),
            "attend": lambda: plan.attend(a, self.heads, 0.5, b, d),
            "linear_add": lambda: plan.linear_add(a, weight, b),
            "norm_glu": lambda: plan.norm_glu(a, self.norm, weight, "silu"),
            "lm_head": lambda: plan.lm_head(a, self.norm, weight),
        }
        attempt(calls[op])


parts = st.sampled_from(
    [
        None,
        *(_native.LinearWeight.of_floats("float32", n, 32) for n in (8, 32, 96)),
        _native.LinearWeight.of_floats("float32", 64, 32, glu=True),
        _native.LinearWeight.of_blocks("Q8_0", 64, 32, glu=True),
        *(_native.LinearWeight.of_blocks("Q4_1", n, 32) for n in (32, 96)),
    ]
)
recorded = st.tuples(
    st.sampled_from(["embed", "norm_qkv", "attend", "linear_add", "norm_glu", "lm_head"]),
    st.lists(st.integers(-1, 5), min_size=4, max_size=4),
    parts,
)
int_arrays = st.lists(
    st.sampled_from([-(2**31), -1, 0, 1, 2, 3, 8, 2**31 - 1]) | st.integers(0, 3), max_size=4
).map(lambda numbers: np.array(numbers, np.int32))


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    """Some that run, and those changed in one array or all."""
    good = {
        "token_ids": np.arange(3, dtype=np.int32),
        "positions": np.array([0, 1, 2], np.int32),
        "slots": np.array([0, 1, 2], np.int32),
        "query_starts": np.array([0, 3], np.int32),
        "context_lens": np.array([3], np.int32),
        "block_tables": np.zeros((1, 1), np.int32),
        "logit_rows": np.array([2], np.int32),
    }
    for name in draw(st.lists(st.sampled_from(sorted(good)), max_size=3)):
        array = draw(int_arrays)
        odd = draw(
            st.sampled_from([array, array[None], array.astype(np.int64), None, array.astype(np.float32)])
        )
        good[name] = odd if name != "block_tables" else draw(st.sampled_from([odd, array.reshape(1, -1)]))
    return Batch(**good)


# A whole model's ops, to be mixed with others; buffers 0 to 3 are x, q, what attention gives and the gate's.
MODEL = [
    ("embed", [0, 0, 0, 0], _native.LinearWeight.of_floats("float32", 8, 32)),
    ("norm_qkv", [0, 0, 4, 0], _native.LinearWeight.of_blocks("Q4_1", 64, 32)),
    ("attend", [1, 0, 0, 0], None),
    ("linear_add", [2, 0, 0, 0], _native.LinearWeight.of_floats("float32", 32, 32)),
    ("norm_glu", [0, 0, 0, 0], _native.LinearWeight.of_blocks("Q8_0", 64, 32, glu=True)),
    ("linear_add", [3, 0, 0, 0], _native.LinearWeight.of_blocks("Q8_0", 32, 32)),
    ("lm_head", [0, 0, 0, 0], _native.LinearWeight.of_floats("float32", 8, 32)),
]
head_counts = st.sampled_from(
    [(4, 2, 8)] * 6 + [(0, 0, 8), (4, 0, 8), (-4, 2, 8), (3, 2, 8), (2**31 - 1, 2, 8)]
)
shapes = st.sampled_from([(1, 2, 8, 8, 2)] * 8 + [(1, 2, 8, 8, 2**31 - 1), (2**31 - 1,) * 5, (0, 2, 8, 8, 2)])


@settings(max_examples=400, deadline=None)
@given(head_counts, shapes, st.lists(recorded, max_size=3), flags, batches(), st.integers(0, 9))
def plans_run_or_refuse(
    heads: tuple[int, int, int], shape: tuple[int, ...], ops: list[Any], whole: bool, batch: Batch, width: int
) -> None:
    recording = Recording(heads, shape)
    if recording.plan is None:
        return
    for op in [*(MODEL if whole else []), *ops]:
        recording.add(*op)
    attempt(recording.plan.run, batch, np.zeros((1, width), np.float32))
    attempt(recording.plan.run, batch, np.zeros((1, 8), np.float32))
    recording.add(*MODEL[0])
    attempt(recording.cache.copy_block, heads[0], width)
