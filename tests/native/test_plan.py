"""What a recorded plan and its cache refuse, with the numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from noria.config.errors import ConfigError
from noria.kernels.batch import Batch
from noria.kernels.native import _native
from noria.kernels.native.backend import NativeBackend
from noria.kernels.native.formats import Formats
from noria.kernels.native.sizes import matrix_sizes
from noria.kernels.ops import BackendOptions, CacheShape, MatrixRole
from noria.models.build import BuiltModel
from noria.models.footprint import kv_bytes
from support_models import load, random_file, small_config
from support_quantised import QUANTISED_KINDS

SHAPE = {"num_layers": 2, "num_kv_heads": 2, "head_dim": 8, "block_size": 16, "num_blocks": 4}


def model() -> BuiltModel:
    return load(random_file(small_config()), 16, 4, backend_name="native", max_model_len=64)


def ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int32)


GOOD = Batch(
    token_ids=ints(5, 6, 7),
    token_types=ints(0, 0, 0),
    positions=ints(0, 1, 0),
    slots=ints(0, 1, 16),
    query_starts=ints(0, 2, 3),
    context_lens=ints(2, 1),
    block_tables=np.array([[0], [1]], np.int32),
    logit_rows=ints(1, 2),
    hidden_rows=ints(0, 2),
)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("token_ids", ints(5, 97, 7), r"token_ids\[1\] is 97; it must be at least 0 and below 97"),
        ("token_ids", ints(-1, 6, 7), r"token_ids\[0\] is -1"),
        ("token_ids", ints(5, 6), "token_types has the length 3; it must be 2"),
        ("token_types", ints(0, 0), "token_types has the length 2; it must be 3"),
        ("token_types", ints(0, -1, 0), r"token_types\[1\] is -1; it must be at least 0"),
        ("positions", ints(0, 64, 0), r"positions\[1\] is 64; it must be at least 0 and below 64"),
        ("slots", ints(0, 1, 64), r"slots\[2\] is 64; it must be at least 0 and below 64"),
        ("slots", ints(0), "slots has the length 1; it must be 3"),
        ("query_starts", ints(0, 2), "query_starts has the length 2; it must be 3"),
        ("query_starts", ints(1, 2, 3), r"query_starts\[0\] is 1; it must be 0"),
        ("query_starts", ints(0, 2, 4), "the end of query_starts is 4; there are 3 tokens"),
        ("query_starts", ints(0, 3, 3), "the context of sequence 0 is 2; it has 3 new tokens"),
        ("query_starts", ints(0, 0, 3), "the number of tokens of sequence 0 is 0; at least 1"),
        ("query_starts", ints(0, -1, 3), "the number of tokens of sequence 0 is -1; at least 1"),
        ("context_lens", ints(1, 1), "the context of sequence 0 is 1; it has 2 new tokens"),
        ("context_lens", ints(17, 1), "block_tables is 1; the context of sequence 0 takes 2"),
        ("block_tables", np.array([[0], [4]], np.int32), r"block_tables\[0\] is 4; .* below 4"),
        ("block_tables", np.array([[0]], np.int32), "block_tables has the length 1; it must be 2"),
        ("logit_rows", ints(1, 3), r"logit_rows\[1\] is 3; it must be at least 0 and below 3"),
        ("hidden_rows", ints(-1), r"hidden_rows\[0\] is -1; it must be at least 0 and below 3"),
    ],
)
def test_a_batch_that_does_not_fit_is_refused_with_the_numbers(
    field: str, value: np.ndarray, message: str
) -> None:
    built = model()
    expected = built.forward(GOOD).logits
    with pytest.raises(ValueError, match=message):
        built.forward(replace(GOOD, **{field: value}))
    np.testing.assert_array_equal(built.forward(GOOD).logits, expected)


def test_a_batch_may_want_no_logits() -> None:
    assert model().forward(replace(GOOD, logit_rows=ints())).logits.shape == (0, 97)


@pytest.mark.parametrize(
    ("logits", "hidden", "what"), [(ints(1), ints(), "logits"), (ints(), ints(1), "hidden states")]
)
def test_rows_that_a_model_does_not_give_are_refused(
    logits: np.ndarray, hidden: np.ndarray, what: str
) -> None:
    plan = _native.Plan(_native.Pool(1), _native.KvCache(_native.CacheShape(**SHAPE), "float32"))
    plan.embed(_native.LinearWeight.of_floats("float32", 8, 32))
    outputs = [np.zeros((len(rows), 0), np.float32) for rows in (logits, hidden)]
    with pytest.raises(ValueError, match=f"the number of rows of {what} is 1; the model gives no {what}"):
        plan.run(replace(GOOD, logit_rows=logits, hidden_rows=hidden), *outputs)


@pytest.mark.parametrize("is_normed", [True, False])
def test_hidden_states_are_the_wanted_rows_of_the_stream(is_normed: bool) -> None:
    plan = _native.Plan(_native.Pool(2), _native.KvCache(_native.CacheShape(**SHAPE), "float32"))
    rows = np.random.default_rng(0).normal(size=(8, 32)).astype(np.float32)
    table = _native.LinearWeight.of_floats("float32", 8, 32)
    table.put_floats(0, rows)
    plan.hidden(plan.embed(table), _native.Norm(np.ones(32, np.float32), 1e-5) if is_normed else None)
    hidden = np.zeros((2, 32), np.float32)
    plan.run(replace(GOOD, logit_rows=ints()), np.zeros((0, 0), np.float32), hidden)
    expected = rows[[5, 7]].astype(np.float64)
    np.testing.assert_allclose(hidden, normed(expected) if is_normed else expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"head_dim": 12}, "head_dim is 12; it must be a positive multiple of 8"),
        ({"block_size": 4}, "block_size is 4; it must be a positive multiple of 8"),
        ({"num_layers": 0}, "num_layers is 0; it must be positive"),
        ({"num_kv_heads": -1}, "num_kv_heads is -1; it must be positive"),
        ({"num_blocks": 0}, "num_blocks is 0; it must be positive"),
    ],
)
def test_a_cache_of_an_impossible_shape_is_refused(change: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _native.KvCache(_native.CacheShape(**{**SHAPE, **change}), "float32")


def test_a_cache_holds_float32_16_bits_or_int8() -> None:
    with pytest.raises(ValueError, match="cannot hold int4; it holds float32, float16, bfloat16 or int8"):
        _native.KvCache(_native.CacheShape(**SHAPE), "int4")


@pytest.mark.parametrize("head_dim", [8, 24, 32, 40, 64, 128])
@pytest.mark.parametrize("kv_dtype", ["float32", "float16", "bfloat16", "int8"])
def test_a_cache_takes_the_bytes_foretold(kv_dtype: str, head_dim: int) -> None:
    config = small_config(head_dim=head_dim, num_layers=3)
    shape = _native.CacheShape(3, config.num_kv_heads, head_dim, 16, 5)
    assert _native.KvCache(shape, kv_dtype).num_bytes == 16 * 5 * kv_bytes(config, kv_dtype)


@pytest.mark.parametrize("pair", [(0, 4), (4, 0), (-1, 0), (0, -1)])
def test_only_blocks_of_the_cache_are_copied(pair: tuple[int, int]) -> None:
    with pytest.raises(IndexError, match=f"block {4 if 4 in pair else -1} of 4"):
        _native.KvCache(_native.CacheShape(**SHAPE), "float32").copy_block(*pair)


def test_no_thread_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match="num_threads is 0; at least 1"):
        _native.Pool(0)


@pytest.mark.parametrize("change", [{"head_dim": 12}, {"block_size": 4}])
def test_the_backend_refuses_what_it_cannot_serve(change: dict[str, Any]) -> None:
    options = BackendOptions("float32", "cpu", 1, CacheShape(**{**SHAPE, **change}))
    with pytest.raises(ConfigError, match=r"the native backend cannot serve this model: .* no multiple of 8"):
        NativeBackend(options)


@pytest.mark.parametrize("num_rows", [1, 64, 100])
@pytest.mark.parametrize("kind", QUANTISED_KINDS)
def test_quantised_weights_take_the_bytes_foretold(kind: str, num_rows: int) -> None:
    packed = _native.LinearWeight.of_blocks(kind, num_rows, 512)
    assert packed.num_bytes == matrix_sizes(Formats("float32"))(kind, (num_rows, 512), MatrixRole.INNER)


@pytest.mark.parametrize("role", MatrixRole)
@pytest.mark.parametrize("quantization", ["w8", "w4"])
def test_rounded_weights_take_the_bytes_foretold(quantization: str, role: MatrixRole) -> None:
    formats = Formats("float32", quantization)
    packed = _native.LinearWeight.of_rounded(formats.of("BF16", 96, role), 100, 96)
    assert packed.num_bytes == matrix_sizes(formats)("BF16", (100, 96), role)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("width", [1, 8, 33])
def test_other_weights_take_the_bytes_foretold(dtype: str, width: int) -> None:
    packed = _native.LinearWeight.of_floats(dtype, 100, width)
    assert packed.num_bytes == matrix_sizes(Formats(dtype))("F32", (100, width), MatrixRole.INNER)


@pytest.mark.parametrize(
    "value",
    [
        None,
        np.zeros((3, 1), np.int32),
        [1.5, 2.5, 3.5],
        "text",
        np.array([2**32, 1, 2]),  # as int32 it would be 0, 1, 2
        np.array([0.5, 1, 2]),
        np.arange(6, dtype=np.int32)[::2],
    ],
)
def test_what_is_no_array_of_int32_is_named(value: object) -> None:
    with pytest.raises(TypeError, match="token_ids is not a contiguous array of int32 of 1 dimension"):
        model().forward(replace(GOOD, token_ids=value))


@pytest.mark.parametrize(
    "odd",
    [
        lambda array: array.astype(np.float64),
        lambda array: array.astype(np.float32)[:, ::-1],
        lambda array: np.asfortranarray(array),
        lambda array: array[0],
    ],
)
@pytest.mark.parametrize("place", [0, 1])
def test_outputs_that_could_not_be_written_where_they_are_are_refused(
    place: int, odd: Callable[[np.ndarray], np.ndarray]
) -> None:
    """Written to a copy, they would say what was there before."""
    built = model()
    plan: Any = built._program._plan  # type: ignore[attr-defined]
    outputs = [np.zeros((2, 97), np.float32), np.zeros((2, 48), np.float32)]
    outputs[place] = odd(outputs[place])
    for call in (plan.run, lambda *arguments: plan.watch(*arguments, lambda index: None)):
        with pytest.raises(TypeError):
            call(GOOD, *outputs)


def test_a_gate_read_in_two_forms_is_read_right_in_both() -> None:
    plan = _native.Plan(_native.Pool(1), _native.KvCache(_native.CacheShape(**SHAPE), "float32"))
    norm, rng = _native.Norm(np.ones(32, np.float32), 1e-5), np.random.default_rng(0)
    names = {"table": 8, "gate": 64, "down": 32, "head": 8}
    rows = {name: rng.normal(size=(n, 32)).astype(np.float32) for name, n in names.items()}
    weights = {
        name: _native.LinearWeight.of_floats("float32", *array.shape, glu=name == "gate")
        for name, array in rows.items()
    }
    for name, array in rows.items():
        weights[name].put_floats(0, array)
    x = plan.embed(weights["table"])
    gate = plan.norm_glu(x, norm, weights["gate"], "silu")
    plan.linear_add(gate, _native.LinearWeight.of_blocks("Q8_0", 32, 32), x)  # of zeros
    plan.linear_add(gate, weights["down"], x)
    plan.lm_head(x, norm, weights["head"])
    batch = replace(GOOD, token_ids=ints(5, 6, 7), hidden_rows=ints())
    logits = np.zeros((2, 8), np.float32)
    plan.run(batch, logits, np.zeros((0, 0), np.float32))
    stream = rows["table"][batch.token_ids].astype(np.float64)
    inner = normed(stream) @ rows["gate"].T
    stream += inner[:, :32] / (1 + np.exp(-inner[:, :32])) * inner[:, 32:] @ rows["down"].T
    np.testing.assert_allclose(logits, (normed(stream) @ rows["head"].T)[1:], rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match="a plan that has run takes no more ops"):
        plan.embed(weights["table"])


@pytest.mark.parametrize("kinds", [("Q8_0", "Q4_0"), ("Q4_0", "Q8_0")])
def test_a_gate_is_not_read_in_rows_of_8_bits_and_of_16(kinds: tuple[str, str]) -> None:
    """It is rounded once; and whichever was asked for first, the plan still runs as it stood."""
    plan = _native.Plan(_native.Pool(1), _native.KvCache(_native.CacheShape(**SHAPE), "float32"))
    x = plan.embed(_native.LinearWeight.of_floats("float32", 8, 32))
    norm = _native.Norm(np.ones(32, np.float32), 1e-5)
    gate = plan.norm_glu(x, norm, _native.LinearWeight.of_floats("float32", 64, 32, glu=True), "silu")
    first, other = (_native.LinearWeight.of_blocks(kind, 32, 32) for kind in kinds)
    plan.linear_add(gate, first, x)
    with pytest.raises(
        ValueError, match=r"buffer \d is read by weights that take rows of 8 bits and by some"
    ):
        plan.linear_add(gate, other, x)
    plan.linear_add(gate, first, x)
    plan.lm_head(x, norm, _native.LinearWeight.of_floats("float32", 8, 32))
    logits = np.full((2, 8), np.nan, np.float32)
    plan.run(replace(GOOD, hidden_rows=ints()), logits, np.zeros((0, 0), np.float32))
    np.testing.assert_array_equal(logits, np.zeros((2, 8)))


def normed(x: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)
