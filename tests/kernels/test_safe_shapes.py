"""The trials find shapes that keep a row's bits, whatever the matrix library does; functions need none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from noria.kernels.torch_ops import safe_rows as rows_module
from noria.kernels.torch_ops import safe_tiles as tiles_module
from noria.kernels.torch_ops.safe_rows import SafeRows, mixed_numbers, safe_rows
from noria.kernels.torch_ops.safe_tiles import safe_tiles

SHAPES = [(40, 24), (7, 24)]
NUDGE = 2.0**-20


@pytest.fixture(autouse=True)
def _fresh_trials() -> Iterator[None]:
    rows_module._agreeing.cache_clear()
    tiles_module.safe_tiles.cache_clear()
    yield
    rows_module._agreeing.cache_clear()
    tiles_module.safe_tiles.cache_clear()


def exact(x: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    """Equal bits in any company: one row, one output at a time."""
    return (x[:, None] * matrix).double().sum(-1).float()


class Library:
    """A matrix library with a quirk; `nudge` says by how much the bits of row i of m differ."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, nudge) -> None:
        def multiply(x: torch.Tensor, matrix: torch.Tensor, out: torch.Tensor) -> None:
            out.copy_(exact(x, matrix))
            out += torch.tensor([[nudge(row, len(x))] for row in range(len(x))]) * NUDGE

        monkeypatch.setattr(rows_module, "multiply", multiply)


def test_a_library_that_always_agrees_may_be_called_with_any_count(monkeypatch: pytest.MonkeyPatch) -> None:
    Library(monkeypatch, lambda row, count: 0)
    assert safe_rows(SHAPES, 2) == SafeRows((1, 2, 4, 8, 16, 32, 64), 2)


def test_counts_that_differ_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    Library(monkeypatch, lambda row, count: count in (1, 2, 32))
    assert safe_rows(SHAPES, 2) == SafeRows((4, 8, 16, 64), 2)


def test_where_places_differ_smaller_products_define_the_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    Library(monkeypatch, lambda row, count: row % 16 >= 4)
    assert safe_rows(SHAPES, 2) == SafeRows((1, 2, 4), 2)


def test_where_neighbours_always_matter_rows_are_computed_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    Library(monkeypatch, lambda row, count: row + count)
    assert safe_rows(SHAPES, 2) == SafeRows((1,), 2)


def test_where_the_number_of_threads_matters_one_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    Library(monkeypatch, lambda row, count: torch.get_num_threads())
    assert safe_rows(SHAPES, 2) == SafeRows((1, 2, 4, 8, 16, 32, 64), 1)


@pytest.mark.parametrize("num_threads", [1, 2, 3])
def test_the_counts_found_agree_on_other_numbers(num_threads: int) -> None:
    shapes = [(96, 32), (37, 48), (50, 65)]
    safe = safe_rows(shapes, num_threads)
    before = torch.get_num_threads()
    random = torch.Generator().manual_seed(2)
    for out_features, in_features in shapes:
        matrix = torch.randn(out_features, in_features, generator=random)
        x = torch.randn(64, in_features, generator=random)
        results = []
        for count in safe.counts:
            out = torch.empty(64, out_features)
            torch.set_num_threads(safe.num_threads)
            for start in range(0, 64, count):
                rows_module.multiply(x[start : start + count], matrix, out[start : start + count])
            torch.set_num_threads(before)
            results.append(out)
        assert all(torch.equal(result, results[0]) for result in results)


def test_the_caller_keeps_its_number_of_threads() -> None:
    before = torch.get_num_threads()
    safe_rows(SHAPES, before + 1)
    safe_tiles(2, 3, 8, 2**20, before + 1)
    assert torch.get_num_threads() == before


def test_tiles_computed_at_once_stay_within_their_bytes() -> None:
    roomy, tight = safe_tiles(2, 3, 8, 2**30, 1), safe_tiles(2, 3, 8, 1, 1)
    assert set(tight.sizes) <= set(roomy.sizes)
    assert all(counts == (1,) for counts in tight.counts.values())
    assert any(counts[-1] > 1 for counts in roomy.counts.values())


def test_where_batched_products_differ_tiles_are_computed_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = tiles_module.scores

    def scores(queries: torch.Tensor, keys: torch.Tensor, out: torch.Tensor) -> None:
        honest(queries, keys, out)
        out += NUDGE * (len(queries) > 2)

    monkeypatch.setattr(tiles_module, "scores", scores)
    safe = safe_tiles(2, 3, 8, 2**30, 1)
    assert safe.counts
    assert all(counts == (1,) for counts in safe.counts.values())


def test_where_places_in_a_tile_differ_each_token_is_a_tile(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = tiles_module.scores

    def scores(queries: torch.Tensor, keys: torch.Tensor, out: torch.Tensor) -> None:
        honest(queries, keys, out)
        out += NUDGE * torch.arange(queries.shape[1])[:, None]

    monkeypatch.setattr(tiles_module, "scores", scores)
    assert safe_tiles(2, 4, 8, 2**30, 1).sizes == (1,)


def test_numbers_for_a_trial_do_not_repeat_within_a_row() -> None:
    numbers = mixed_numbers(40, 3001)
    assert numbers.shape == (40, 3001)
    assert all(len(row.unique()) > 2900 for row in numbers)
    assert float(numbers.abs().max()) <= 0.5


@pytest.mark.parametrize("name", ["exp", "tanh", "sqrt"])
def test_a_function_gives_a_number_the_same_bits_at_every_place(name: str) -> None:
    function = getattr(torch, name)
    x = (torch.rand(5000, generator=torch.Generator().manual_seed(1)) + 0.001) * 20
    one_by_one = torch.cat([function(number) for number in x.split(1)])
    before = torch.get_num_threads()
    try:
        for num_threads in (1, 2, 3):
            torch.set_num_threads(num_threads)
            for start in range(0, 40, 3):
                for length in (1, 2, 7, 8, 9, 31, 33, 1000, 4900):
                    piece = slice(start, start + length)
                    assert torch.equal(function(x[piece]), one_by_one[piece])
    finally:
        torch.set_num_threads(before)
