"""Cutting a count into pieces of sizes that are known to be safe."""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=4096)
def split(count: int, sizes: tuple[int, ...], call_cost: int) -> tuple[int, ...]:
    """Pieces that cover `count`, largest first; the last may reach beyond it.

    sizes: ascending. call_cost: what a piece costs beside its size, in the same unit: a lone large piece, part of
    it unused, may beat several small ones.
    """
    assert sizes, "no sizes to split into"
    whole, rest = divmod(count, sizes[-1])
    return (sizes[-1],) * whole + _split_rest(rest, sizes, call_cost)


def _split_rest(rest: int, sizes: tuple[int, ...], call_cost: int) -> tuple[int, ...]:
    """The cheaper of one piece that covers it, and the largest that fits inside with the rest split alike."""
    if rest <= 0:
        return ()
    options: list[tuple[int, ...]] = []
    covering = [size for size in sizes if size >= rest]
    if covering:
        options.append((covering[0],))
    inside = [size for size in sizes if size < rest]
    if inside:
        options.append((inside[-1], *_split_rest(rest - inside[-1], sizes, call_cost)))
    return min(options, key=lambda pieces: sum(pieces) + call_cost * len(pieces))
