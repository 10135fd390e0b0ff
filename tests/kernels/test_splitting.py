from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from noria.kernels.torch_ops.splitting import split

SIZES = st.sets(st.integers(1, 64), min_size=1).map(lambda sizes: tuple(sorted(sizes)))


@given(count=st.integers(0, 500), sizes=SIZES, call_cost=st.integers(0, 20))
def test_pieces_are_of_the_sizes_given_and_only_the_last_reaches_beyond(
    count: int, sizes: tuple[int, ...], call_cost: int
) -> None:
    pieces = split(count, sizes, call_cost)
    assert set(pieces) <= set(sizes)
    assert sum(pieces) >= count
    assert sum(pieces[:-1]) < count or count == 0
    assert list(pieces) == sorted(pieces, reverse=True)


def test_a_piece_partly_unused_is_taken_where_a_call_costs_more() -> None:
    assert split(20, (4, 16, 32), call_cost=12) == (32,)
    assert split(20, (4, 16, 32), call_cost=1) == (16, 4)
    assert split(70, (4, 16, 32), call_cost=12) == (32, 32, 16)


def test_nothing_needs_no_piece() -> None:
    assert split(0, (4, 8), 1) == ()
