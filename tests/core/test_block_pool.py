from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from noria.core.blocks import BlockPool


class PoolAgainstLists(RuleBasedStateMachine):
    """The intrusive list behaves like a plain list of free blocks, whatever is done in whatever order."""

    @initialize(num_blocks=st.integers(1, 9))
    def start(self, num_blocks: int) -> None:
        self.pool = BlockPool(num_blocks)
        self.free = list(range(num_blocks))
        self.held: dict[int, int] = {}

    @precondition(lambda self: self.free)
    @rule()
    def take(self) -> None:
        block = self.pool.take()
        assert block == self.free.pop(0)
        self.held[block] = 1

    @rule(data=st.data())
    def hold(self, data: st.DataObject) -> None:
        block = data.draw(st.integers(0, self.pool.num_blocks - 1))
        self.pool.hold(block)
        self.held[block] = self.held.get(block, 0) + 1
        if block in self.free:
            self.free.remove(block)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), to_back=st.booleans())
    def release(self, data: st.DataObject, to_back: bool) -> None:
        block = data.draw(st.sampled_from(sorted(self.held)))
        (self.pool.release_to_back if to_back else self.pool.release_to_front)(block)
        self.held[block] -= 1
        if self.held[block] == 0:
            del self.held[block]
            self.free.insert(len(self.free) if to_back else 0, block)

    @invariant()
    def agrees(self) -> None:
        if hasattr(self, "pool"):
            assert self.pool.free_blocks() == self.free
            tables = [[block] * count for block, count in self.held.items()]
            self.pool.check(tables)


TestPoolAgainstLists = PoolAgainstLists.TestCase
TestPoolAgainstLists.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_taking_from_an_empty_pool_names_its_size() -> None:
    pool = BlockPool(1)
    pool.take()
    with pytest.raises(AssertionError, match="empty pool of 1 blocks"):
        pool.take()


def test_check_finds_a_reference_that_no_table_accounts_for() -> None:
    pool = BlockPool(3)
    block = pool.take()
    with pytest.raises(AssertionError, match=f"block {block}: 0 tables hold it, its reference count is 1"):
        pool.check([])


def test_releasing_a_free_block_is_refused() -> None:
    with pytest.raises(AssertionError, match="block 2, which nobody holds"):
        BlockPool(3).release_to_back(2)
