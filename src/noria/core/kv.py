"""Who holds which blocks: block tables of running requests over the pool and the prefix cache."""

from __future__ import annotations

from dataclasses import dataclass

from noria.config.engine import CacheConfig
from noria.core.blocks import BlockPool
from noria.core.plan import BlockMove
from noria.core.prefix import CachedBlock, Namespace, PrefixCache
from noria.core.request import Request

# What a block is to whoever looks on: holds nothing anybody wants, a prefix that nobody uses now, or KV in use.
FREE, CACHED, USED = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Hit:
    """What the prefix cache holds of a request's known tokens.

    blocks: shared as they are. copy_source: one more cached block of which a private copy is made, because its
    last token has to be computed again to get logits. num_tokens: tokens that need not be computed.
    maker: the running request that is about to compute the next block, if one is.
    """

    blocks: tuple[int, ...] = ()
    copy_source: int | None = None
    num_tokens: int = 0
    maker: str | None = None


@dataclass(slots=True)
class BlockTable:
    """The blocks of one running request, in the order of its tokens.

    # [0, num_registered) have been offered to the prefix cache; `parent` names the last of them
    """

    blocks: list[int]
    num_registered: int
    parent: int | Namespace


class KVCacheManager:
    """Owner of the block tables. Sizes are in tokens unless a name says blocks."""

    def __init__(self, config: CacheConfig) -> None:
        self.block_size = config.block_size
        self.pool = BlockPool(config.num_blocks)
        self.prefix = PrefixCache()
        self._registers = config.enable_prefix_caching
        self._tables: dict[str, BlockTable] = {}
        self._num_evictable = 0  # free blocks that the prefix cache still knows
        self._changes: dict[int, int] = {}  # FREE, CACHED or USED, of blocks for which that changed

    @property
    def num_blocks_used(self) -> int:
        return self.pool.num_blocks - self.pool.num_free

    @property
    def num_blocks_cached(self) -> int:
        """Free blocks that still hold a reusable prefix."""
        return self._num_evictable

    def num_blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def num_held(self, request_id: str) -> int:
        return len(self._tables[request_id].blocks)

    def find(self, request: Request) -> Hit:
        """The longest cached prefix of a request that holds no blocks. Nothing is taken."""
        return self._find_shared(request) if self.is_shareable(request) else Hit()

    def is_shareable(self, request: Request) -> bool:
        """Whether cached blocks may serve the request: one that wants something of each position must compute
        them all.
        """
        return self._registers and not request.params.needs_every_position

    def admission_cost(self, hit: Hit, num_tokens: int) -> int:
        """Free blocks that go away when a request with this hit comes to hold `num_tokens`."""
        revived = sum(1 for block in hit.blocks if self.pool.references(block) == 0)
        return self.num_blocks_for(num_tokens) - len(hit.blocks) + revived

    def admit(self, request: Request, hit: Hit) -> list[BlockMove]:
        """Start the request's table with the hit; the copy to make, if any, is returned."""
        assert request.id not in self._tables, f"request {request.id} has a table already"
        for block in hit.blocks:
            self._hold(block)
        table = BlockTable(list(hit.blocks), 0, request.chain.namespace)
        self._tables[request.id] = table
        request.num_computed = hit.num_tokens
        self._skip_registered(request, table)
        self._announce(request, table)
        if hit.copy_source is None:
            return []
        # Most recently used from now on; it is taken only when no other block is free, and then holds the
        # content already.
        self._hold(hit.copy_source)
        self._release(hit.copy_source)
        destination = self._take()
        table.blocks.append(destination)
        return [] if destination == hit.copy_source else [BlockMove(hit.copy_source, destination)]

    def has_slot(self, request: Request) -> bool:
        """Whether the next token has a slot in blocks that the request holds; False for one that holds none."""
        table = self._tables.get(request.id)
        return table is not None and request.num_computed < len(table.blocks) * self.block_size

    def room(self, request: Request) -> int:
        """Tokens that can be computed next without freeing anything."""
        capacity = (self.num_held(request.id) + self.pool.num_free) * self.block_size
        return capacity - request.num_computed

    def grow(self, request: Request, num_new: int) -> tuple[int, ...] | None:
        """Blocks taken so that the next `num_new` tokens have slots; None, and nothing taken, if there is no room."""
        table = self._tables[request.id]
        missing = self.num_blocks_for(request.num_computed + num_new) - len(table.blocks)
        if missing <= 0:
            return ()
        if missing > self.pool.num_free:
            return None
        gained = tuple(self._take() for _ in range(missing))
        table.blocks.extend(gained)
        return gained

    def holders(self) -> set[str]:
        """Ids of the requests that have a table."""
        return set(self._tables)

    def table(self, request_id: str) -> tuple[int, ...]:
        return tuple(self._tables[request_id].blocks)

    def register(self, request: Request) -> None:
        """Offer the request's newly full blocks to the prefix cache."""
        if not self._registers:
            return
        table = self._tables[request.id]
        num_full = request.num_computed // self.block_size
        if table.num_registered >= num_full:
            return  # most steps: a decode fills a block now and then
        for index in range(table.num_registered, num_full):
            tokens = self._block_tokens(request, index)
            digest = request.chain.digest(index, request.token_ids)
            orphan = self.prefix.orphan_under(digest)
            if orphan is not None:
                self._forget(orphan)
            table.parent = self.prefix.insert(digest, table.parent, tokens, table.blocks[index])
            table.num_registered = index + 1

    def release(self, request: Request) -> None:
        """Give back the request's blocks, tail first, so that a prefix outlives what follows it."""
        table = self._tables.pop(request.id)
        for index in self._unregistered(request, table):
            self.prefix.withdraw(request.chain.digest(index, request.token_ids), request.id)
        for block in reversed(table.blocks):
            self._release(block)
        request.num_computed = 0

    def take_changes(self) -> tuple[tuple[int, int], ...]:
        """(block, FREE | CACHED | USED as it is now) of the blocks for which that changed since the last call."""
        if not self._changes:
            return ()
        changes, self._changes = self._changes, {}
        return tuple(changes.items())

    def check(self) -> None:
        """Assert that pool, tables and prefix cache agree to the block."""
        self.pool.check(table.blocks for table in self._tables.values())
        self.prefix.check(self.holders())
        evictable = sum(1 for block in self.pool.free_blocks() if self.prefix.holds(block))
        assert evictable == self._num_evictable, (
            f"{evictable} evictable blocks, counted {self._num_evictable}"
        )

    def _find_shared(self, request: Request) -> Hit:
        blocks: list[int] = []
        parent: int | Namespace = request.chain.namespace
        for index in range(request.num_known // self.block_size):
            cached = self._cached_block(request, index, parent)
            if cached is None:
                maker = self.prefix.maker(request.chain.digest(index, request.token_ids))
                return Hit(tuple(blocks), None, len(blocks) * self.block_size, maker)
            blocks.append(cached.block)
            parent = cached.serial
        if len(blocks) * self.block_size < request.num_known:
            return Hit(tuple(blocks), None, len(blocks) * self.block_size)
        # Everything is cached, but the last token's logits are not: compute that one token in a private copy.
        return Hit(tuple(blocks[:-1]), blocks[-1], request.num_known - 1)

    def _unregistered(self, request: Request, table: BlockTable) -> range:
        """Indices of the known full blocks that were not offered yet; none without a prefix cache."""
        return range(table.num_registered, request.num_known // self.block_size if self._registers else 0)

    def _announce(self, request: Request, table: BlockTable) -> None:
        for index in self._unregistered(request, table):
            self.prefix.announce(request.chain.digest(index, request.token_ids), request.id)

    def _cached_block(self, request: Request, index: int, parent: int | Namespace) -> CachedBlock | None:
        """Block `index` of the request, if it is cached after `parent`. Tokens are compared once an entry."""
        cached = self.prefix.under(request.chain.digest(index, request.token_ids))
        if cached is None or cached.parent != parent:
            return None
        if request.chain.matched.get(index) != cached.serial:
            if cached.tokens != self._block_tokens(request, index):
                return None
            request.chain.matched[index] = cached.serial
        return cached

    def _skip_registered(self, request: Request, table: BlockTable) -> None:
        for index in range(len(table.blocks)):
            cached = self._cached_block(request, index, table.parent)
            assert cached is not None, f"shared block {index} of request {request.id} is not cached"
            table.parent = cached.serial
            table.num_registered = index + 1

    def _block_tokens(self, request: Request, index: int) -> tuple[int, ...]:
        return tuple(request.token_ids[index * self.block_size : (index + 1) * self.block_size])

    def _take(self) -> int:
        block = self.pool.take()
        if self.prefix.forget(block):
            self._num_evictable -= 1
        self._changes[block] = USED
        return block

    def _forget(self, block: int) -> None:
        if self.prefix.forget(block) and self.pool.references(block) == 0:
            self._num_evictable -= 1
            self._changes[block] = FREE

    def _hold(self, block: int) -> None:
        if self.pool.references(block) == 0:
            self._changes[block] = USED
            if self.prefix.holds(block):
                self._num_evictable -= 1
        self.pool.hold(block)

    def _release(self, block: int) -> None:
        if not self.prefix.holds(block):
            self.pool.release_to_front(block)
            if self.pool.references(block) == 0:
                self._changes[block] = FREE
            return
        self.pool.release_to_back(block)
        if self.pool.references(block) == 0:
            self._num_evictable += 1
            self._changes[block] = CACHED
