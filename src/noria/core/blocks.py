"""The block pool: reference counts and one intrusive free list that is also the LRU order of cached blocks."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

_END = -1


class BlockPool:
    """Blocks 0 .. num_blocks - 1, each either held (reference count above 0) or on the free list.

    The free list is doubly linked through two arrays, so a block leaves it from anywhere in constant time: that
    is what a prefix hit on a free block needs. Blocks are taken from the front; a block whose content may be
    wanted again goes to the back when released, one whose content is worthless to the front.
    """

    def __init__(self, num_blocks: int) -> None:
        assert num_blocks > 0, f"a pool needs blocks, got {num_blocks}"
        self.num_blocks = num_blocks
        self.num_free = num_blocks
        self._references = [0] * num_blocks
        self._next = [*range(1, num_blocks), _END]
        self._previous = [_END, *range(num_blocks - 1)]
        self._front = 0
        self._back = num_blocks - 1

    def references(self, block: int) -> int:
        return self._references[block]

    def take(self) -> int:
        """The least recently used free block, now held once. The caller has made sure that there is one."""
        block = self._front
        assert block != _END, f"take from an empty pool of {self.num_blocks} blocks"
        self._unlink(block)
        self._references[block] = 1
        return block

    def hold(self, block: int) -> None:
        """One more reference; a free block leaves the free list."""
        if self._references[block] == 0:
            self._unlink(block)
        self._references[block] += 1

    def release_to_back(self, block: int) -> None:
        """One reference less; the last one makes the block the most recently used free block."""
        if self._drop_reference(block):
            self._link(block, previous=self._back, following=_END)

    def release_to_front(self, block: int) -> None:
        """One reference less; the last one makes the block the next to be taken."""
        if self._drop_reference(block):
            self._link(block, previous=_END, following=self._front)

    def free_blocks(self) -> list[int]:
        """The free list, front to back."""
        blocks, block = [], self._front
        while block != _END:
            blocks.append(block)
            block = self._next[block]
            assert len(blocks) <= self.num_blocks, "the free list has a cycle"
        return blocks

    def check(self, tables: Iterable[Iterable[int]]) -> None:
        """Assert that references equal the tables that hold each block, and that held + free is the whole pool."""
        counts = [0] * self.num_blocks
        for table in tables:
            for block in table:
                counts[block] += 1
        assert counts == self._references, _first_difference(counts, self._references)
        free = self.free_blocks()
        held = sum(1 for count in self._references if count)
        assert len(free) == self.num_free, f"free list has {len(free)} blocks, counted {self.num_free}"
        assert len(set(free)) == len(free), "a block is on the free list twice"
        assert held + self.num_free == self.num_blocks, (
            f"{held} held + {self.num_free} free != {self.num_blocks}"
        )
        assert all(self._references[block] == 0 for block in free), "a held block is on the free list"
        for block, following in pairwise(free):
            assert self._previous[following] == block, f"broken back link from {following} to {block}"
        assert self._back == (free[-1] if free else _END), f"back is {self._back}"

    def _drop_reference(self, block: int) -> bool:
        assert self._references[block] > 0, f"release of block {block}, which nobody holds"
        self._references[block] -= 1
        return self._references[block] == 0

    def _unlink(self, block: int) -> None:
        previous, following = self._previous[block], self._next[block]
        if previous == _END:
            self._front = following
        else:
            self._next[previous] = following
        if following == _END:
            self._back = previous
        else:
            self._previous[following] = previous
        self.num_free -= 1

    def _link(self, block: int, previous: int, following: int) -> None:
        self._previous[block], self._next[block] = previous, following
        if previous == _END:
            self._front = block
        else:
            self._next[previous] = block
        if following == _END:
            self._back = block
        else:
            self._previous[following] = block
        self.num_free += 1


def _first_difference(expected: list[int], found: list[int]) -> str:
    for block, (want, have) in enumerate(zip(expected, found, strict=True)):
        if want != have:
            return f"block {block}: {want} tables hold it, its reference count is {have}"
    return "no difference"
