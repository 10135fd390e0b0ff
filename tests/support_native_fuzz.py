"""Calls of the native bindings with arguments of every kind, most of them wrong."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import support_examples  # noqa: F401  (this is imported where no conftest is)
from noria.kernels.batch import Batch
from noria.kernels.native import _native

POOL = _native.Pool(2)
REFUSALS = (ValueError, TypeError, IndexError, MemoryError, RuntimeError, OverflowError)

sizes = st.sampled_from([-1, 0, 1, 2, 3, 8, 16, 31, 32, 64, 65, 2**15, 2**31 - 1, 2**31, 2**62, 2**63 - 1])
extent = st.one_of(*[st.sampled_from([8, 32, 64, 96, 256])] * 4, sizes)
small = st.integers(-2, 9)
flags = st.booleans()
dtypes = st.sampled_from([np.float32, np.float64, np.int8, np.uint8, np.int32, np.int64])
float_kinds = st.sampled_from(["F32", "F16", "BF16", "F64"])
bits = st.sampled_from([8, 8, 16, 0, 7, -8])
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
    form = draw(st.sampled_from(["floats", "rounded", "blocks", "codes"]))
    make = _native.LinearWeight
    extents = draw(extent), draw(extent)
    if form == "floats":
        dtype = draw(st.sampled_from(["float32", "bfloat16", "int7"]))
        return attempt(make.of_floats, dtype, *extents, glu=draw(flags), bias=draw(flags))
    if form == "rounded":
        into = draw(st.sampled_from(["w8", "w4", "w2"]))
        return attempt(make.of_rounded, into, *extents, glu=draw(flags), bias=draw(flags))
    if form == "blocks":
        return attempt(make.of_blocks, draw(block_types), *extents, glu=draw(flags), bias=draw(flags))
    group, zero = draw(st.sampled_from([0, 16, 32, -32])), draw(st.sampled_from([0, 3, 8, 128, 256]))
    code_bits = draw(st.sampled_from([0, 4, 6, 8, 9]))
    return attempt(make.of_codes, code_bits, group, zero, *extents, glu=draw(flags))


def stored_rows(kind: str, num_rows: int, width: int, odd: float) -> np.ndarray:
    """Bytes that fit, one of their numbers odd."""
    numbers = np.random.default_rng(width).standard_normal((num_rows, width)).astype(np.float32)
    numbers.flat[-1:] = odd
    if kind == "F16":
        return numbers.astype(np.float16).view(np.uint8)
    return numbers.view(np.uint8) if kind == "F32" else numbers.view(np.uint16)[:, 1::2].copy().view(np.uint8)


@settings(max_examples=300, deadline=None)
@given(
    weights(), float_kinds, small, st.integers(0, 70), st.sampled_from([1.0, np.nan, np.inf, 65504.0, 1e38])
)
def stored_floats_are_taken_or_refused(weight: Any, kind: str, first: int, num_rows: int, odd: float) -> None:
    if weight is None or weight.k > 2**15:
        return
    rows = stored_rows(kind, num_rows, weight.k, odd)
    attempt(weight.put_stored, POOL, first, kind, rows)
    attempt(weight.put_stored, None, first, kind, rows)
    attempt(weight.put_stored, POOL, first, kind, rows[:, 1:])
    attempt(weight.put_stored, POOL, first, kind, rows[::2])
    attempt(weight.put_stored, POOL, weight.n - num_rows, kind, rows)
    attempt(weight.read, weight.n - num_rows, num_rows)


@settings(max_examples=400, deadline=None)
@given(weights(), sizes, arrays(), arrays(), arrays(), block_types, flags, bits)
def weights_take_or_refuse(
    weight: Any, first: int, a: Any, b: Any, c: Any, block_type: str, flag: bool, row_bits: int
) -> None:
    rows = attempt(_native.QuantisedRows.of_floats, a, bits=row_bits)
    attempt(_native.QuantisedRows.of_floats, a, b, 1e-5, bits=row_bits)
    attempt(_native.QuantisedRows.of_codes, a, b, bits=row_bits)
    if weight is None:
        return
    attempt(weight.put_floats, first, a)
    attempt(weight.put_blocks, first, block_type, a)
    attempt(weight.put_codes, first, a, b, c)
    attempt(weight.put_bias, a)
    if weight.k <= 64:
        attempt(weight.read, first, 2)
    if weight.n <= 64 and weight.k <= 2**15:
        for x in (a, rows):
            attempt(_native.multiply, weight, x, b, add=flag, begin=0, end=weight.num_panels, num_threads=1)
            attempt(_native.multiply, weight, x, b, add=flag, begin=first, end=2, num_threads=first)
            attempt(_native.multiply_activated, weight, x, b, activation="gelu", bits=row_bits, num_threads=1)


@settings(max_examples=400, deadline=None)
@given(weights(), st.integers(0, 5), st.sampled_from([1.0, np.nan, np.inf, 1e38]), bits, small, flags)
def products_run_or_refuse(
    weight: Any, num_rows: int, odd: float, row_bits: int, panel: int, flag: bool
) -> None:
    """Arrays that fit, one of their numbers odd."""
    if weight is None or max(weight.n, weight.k) > 256:
        return
    matrix, x = (np.full((count, weight.k), 0.5, np.float32) for count in (weight.n, num_rows))
    matrix.flat[-1:] = x.flat[-1:] = odd
    groups = matrix[:, : weight.k // 32].copy()
    attempt(weight.put_floats, 0, matrix)
    attempt(weight.put_stored, POOL, 0, "F32", matrix.view(np.uint8))
    attempt(weight.put_codes, 0, np.full(matrix.shape, 3, np.uint8), groups)
    attempt(weight.put_codes, 0, np.full(matrix.shape, 3, np.uint8), groups, groups)
    attempt(weight.put_bias, np.ones(weight.n, np.float32))
    outputs = np.zeros((num_rows, weight.num_outputs), np.float32)
    for rows in (x, attempt(_native.QuantisedRows.of_floats, x, bits=row_bits)):
        for begin, end in ((0, weight.num_panels), (panel, weight.num_panels), (0, panel)):
            attempt(_native.multiply, weight, rows, outputs, add=flag, begin=begin, end=end, num_threads=2)
        attempt(
            _native.multiply_activated, weight, rows, outputs, activation="gelu", bits=row_bits, num_threads=2
        )


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
            "embed": lambda: plan.embed(weight, self.sum(b, c, d)),
            "norm_qkv": lambda: plan.norm_qkv(
                a, self.norm, _native.Qkv([weight], self.heads, rope, None, None), b
            ),
            "attend": lambda: plan.attend(a, self.heads, 0.5, _native.Reach(b, c), d),
            "linear_add": lambda: plan.linear_add(a, weight, b),
            "normalise": lambda: plan.normalise(a, self.norm),
            "norm_glu": lambda: plan.norm_glu(a, self.norm, weight, "silu"),
            "norm_activate": lambda: plan.norm_activate(a, self.norm if b > 0 else None, weight, "gelu"),
            "lm_head": lambda: plan.lm_head(a, self.norm, weight),
            "hidden": lambda: plan.hidden(a, self.norm if b > 0 else None),
        }
        attempt(calls[op])

    def sum(self, num_positions: int, num_types: int, width: int) -> Any:
        """What an embedding is added to; nothing where there are no positions."""
        if num_positions < 0:
            return None
        tables = [np.zeros((max(0, n), 32 + max(0, width)), np.float32) for n in (num_positions, num_types)]
        return _native.EmbeddingSum(*tables, self.norm)


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
    st.sampled_from(
        [
            "embed",
            "norm_qkv",
            "attend",
            "linear_add",
            "normalise",
            "norm_glu",
            "norm_activate",
            "lm_head",
            "hidden",
        ]
    ),
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
        "token_types": np.array([0, 1, 0], np.int32),
        "positions": np.array([0, 1, 2], np.int32),
        "slots": np.array([0, 1, 2], np.int32),
        "query_starts": np.array([0, 3], np.int32),
        "context_lens": np.array([3], np.int32),
        "block_tables": np.zeros((1, 1), np.int32),
        "logit_rows": np.array([2], np.int32),
        "hidden_rows": np.array([1], np.int32),
    }
    for name in draw(st.lists(st.sampled_from(sorted(good)), max_size=3)):
        array = draw(int_arrays)
        odd = draw(
            st.sampled_from([array, array[None], array.astype(np.int64), None, array.astype(np.float32)])
        )
        good[name] = odd if name != "block_tables" else draw(st.sampled_from([odd, array.reshape(1, -1)]))
    return Batch(**good)


# A whole model's ops, to be mixed with others; buffers 0 to 4 are x, q, what attention gives, the gate's
# and the activation's.
MODEL = [
    ("embed", [0, 3, 2, 0], _native.LinearWeight.of_floats("float32", 8, 32)),
    ("norm_qkv", [0, 0, 4, 0], _native.LinearWeight.of_blocks("Q4_1", 64, 32)),
    ("attend", [1, 2, 1, 0], None),
    ("linear_add", [2, 0, 0, 0], _native.LinearWeight.of_floats("float32", 32, 32)),
    ("normalise", [0, 0, 0, 0], None),
    ("norm_glu", [0, 0, 0, 0], _native.LinearWeight.of_blocks("Q8_0", 64, 32, glu=True)),
    ("linear_add", [3, 0, 0, 0], _native.LinearWeight.of_blocks("Q8_0", 32, 32)),
    ("norm_activate", [0, 0, 0, 0], _native.LinearWeight.of_floats("float32", 32, 32)),
    ("linear_add", [4, 0, 0, 0], _native.LinearWeight.of_blocks("Q8_0", 32, 32)),
    ("lm_head", [0, 0, 0, 0], _native.LinearWeight.of_floats("float32", 8, 32)),
    ("hidden", [0, 1, 0, 0], None),
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
    for logits, hidden in ((width, 32), (8, width), (8, 32), (8, 0)):
        outputs = np.zeros((1, logits), np.float32), np.zeros((1 if hidden else 0, hidden), np.float32)
        attempt(recording.plan.run, batch, *outputs)
    recording.add(*MODEL[0])
    attempt(recording.cache.copy_block, heads[0], width)


odd_numbers = st.sampled_from([0.0, 1.0, 0.5, -1.0, np.nan, np.inf, 1e308, 5e-324, 2**70, None])
whole_numbers = st.sampled_from([0, 1, 5, -1, 64, 2**31, 2**63 - 1, 2**63, None])
token_ids = st.sampled_from([0, 1, 2, 3] * 4 + [-1, 64, 2**31 - 1, 2**31, 2**63])
PARAMS: dict[str, Any] = {
    "temperature": st.sampled_from([0.0, 0.7]),
    "top_k": st.sampled_from([0, 2, 1000]),
    "top_p": st.sampled_from([1.0, 0.9]),
    "min_p": st.sampled_from([0.0, 0.1]),
    "repetition_penalty": st.sampled_from([1.0, 1.3]),
    "presence_penalty": st.sampled_from([0.0, 0.5]),
    "frequency_penalty": st.sampled_from([0.0, -0.5]),
    "min_tokens": st.sampled_from([0, 3]),
    "logit_bias": st.dictionaries(token_ids, odd_numbers, max_size=1),
}


@st.composite
def requests(draw: st.DrawFn) -> Any:
    """Some that are good, and those changed in one thing or more."""
    params = SimpleNamespace(**{name: draw(values) for name, values in PARAMS.items()})
    for name in draw(st.lists(st.sampled_from(sorted(PARAMS)), max_size=2)):
        setattr(params, name, draw(odd_numbers | whole_numbers))
    seed = draw(st.sampled_from([0, 7, 2**64 - 1] * 3 + [2**64, -1]))
    known = draw(int_arrays) if draw(flags) else np.array([1, 2, 0], np.int32)
    ending = draw(st.lists(token_ids, max_size=1))
    return attempt(_native.SampledRequest, params, seed, known, draw(st.integers(-1, 3)), ending)


@st.composite
def logit_rows(draw: st.DrawFn) -> np.ndarray:
    shape = draw(st.integers(0, 3)), draw(st.sampled_from([0, 1, 4, 5, 64, 65, 200]))
    logits = np.random.default_rng(shape[1]).standard_normal(shape).astype(np.float32)
    for odd in draw(st.lists(st.sampled_from([np.nan, np.inf, -np.inf, 3e38]), max_size=3)):
        logits.flat[draw(st.integers(0, 9)) :: draw(st.integers(1, 70))] = odd
    return logits


whole32 = st.sampled_from([0, 1, 2, 3] * 4 + [-1, 64, 2**31 - 1, -(2**31)])
int_rows = st.lists(st.tuples(whole32, whole32, whole32), max_size=3).map(
    lambda rows: np.array(rows, np.int32).reshape(-1, 3)
)


@settings(max_examples=500, deadline=None)
@given(st.lists(requests(), max_size=3), logit_rows(), int_arrays, int_rows, st.integers(0, 5), small)
def samplers_choose_or_refuse(
    chosen_for: list[Any], logits: np.ndarray, rows: np.ndarray, asked: np.ndarray, width: int, off: int
) -> None:
    sampler, count = _native.Sampler(POOL), len(chosen_for)
    there = np.arange(count, dtype=np.int32)
    outcomes = np.zeros((count, 3), np.int32)
    for request in chosen_for:
        if request is not None:
            attempt(request.adjust, logits[0] if len(logits) else logits)
    bits, places = (
        np.full((2, width), off % 2**32, np.uint32),
        np.array((*rows % 3, *there), np.int32)[:count] - 1,
    )
    for sample in (sampler.sample, sampler.sample_adjusted):
        attempt(sample, logits, there, chosen_for, bits, np.full(count, -1, np.int32), outcomes)
        attempt(sample, logits, there, chosen_for, bits, places, outcomes)
        attempt(sample, logits, rows, chosen_for, bits, places, outcomes)
        attempt(sample, logits, rows, chosen_for, bits, rows, outcomes)
        attempt(sample, logits, there, chosen_for, bits, places, outcomes[:, 1:])
        attempt(sample, logits, there, [one for one in chosen_for if one is not None], bits, places, outcomes)
    shapes = [(len(asked), 4), (len(asked), width), (len(asked), 1 + width)]
    told, ids, tops = (np.zeros(shape, kind) for shape, kind in zip(shapes, "iid", strict=True))
    attempt(sampler.logprobs, logits, asked, told, ids, tops)
    attempt(sampler.logprobs, logits, asked % 3, told, ids, tops)
    attempt(sampler.logprobs, logits, asked, told, ids[:, off:], tops)
