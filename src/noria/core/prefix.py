"""The prefix cache: full blocks found again by a chain of hashes over everything that shaped their KV."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

Digest = Callable[[bytes, bytes], bytes]


def sha256_digest(parent: bytes, content: bytes) -> bytes:
    """Digest of a block: its parent's digest (a fixed 32 bytes, so the two cannot run together) and its own."""
    return hashlib.sha256(parent + content).digest()


@dataclass(frozen=True, slots=True)
class Namespace:
    """What shapes KV besides the tokens, and who may share it. Blocks are shared only within one namespace.

    model: of the weights and how they are computed with (EngineConfig.kv_identity). tenant: empty where all share.
    """

    model: str
    adapter: str = ""
    salt: str = ""
    tenant: str = ""

    def encode(self) -> bytes:
        """Each field behind its tag and length, so that no two namespaces read the same."""
        return b"".join(_tagged(field.name, getattr(self, field.name)) for field in fields(self))


def _tagged(tag: str, value: str) -> bytes:
    content = value.encode("utf-8", "surrogatepass")
    return f"{tag}:{len(content)}:".encode() + content


@dataclass(frozen=True, slots=True)
class CachedBlock:
    """A full block whose KV can be shared.

    serial: unique for ever, so a child can name its parent without keeping it alive.
    parent: serial of the block before it, or the namespace of a first block.
    """

    block: int
    serial: int
    parent: int | Namespace
    tokens: tuple[int, ...]
    digest: bytes


class HashChain:
    """Digests of one request's full blocks, computed once and only as far as somebody asks."""

    __slots__ = ("_block_size", "_digest", "_digests", "matched", "namespace")

    def __init__(self, namespace: Namespace, block_size: int, digest: Digest = sha256_digest) -> None:
        self.namespace = namespace
        self._block_size = block_size
        self._digest = digest
        self._digests: list[bytes] = []
        self.matched: dict[int, int] = {}  # block index -> serial of the entry its tokens were found equal to

    def digest(self, index: int, tokens: Sequence[int]) -> bytes:
        """Digest of block `index` of a sequence whose known tokens are `tokens` (the block must be full)."""
        while len(self._digests) <= index:
            start = len(self._digests) * self._block_size
            assert start + self._block_size <= len(tokens), (
                f"block {index} of {len(tokens)} tokens is not full"
            )
            parent = self._digests[-1] if self._digests else self._digest(b"", self.namespace.encode())
            content = array("I", tokens[start : start + self._block_size]).tobytes()
            self._digests.append(self._digest(parent, content))
        return self._digests[index]


class PrefixCache:
    """Maps digests to blocks. A hit needs the same tokens and the same parent, not only the same digest, so a
    weak or attacked hash costs hits and never correctness.
    """

    def __init__(self) -> None:
        self._by_digest: dict[bytes, CachedBlock] = {}
        self._by_block: dict[int, CachedBlock] = {}
        self._serials: set[int] = set()  # of the entries there are
        self._coming: dict[bytes, str] = {}  # digest -> the running request that is about to compute it
        self._num_serials = 0

    def holds(self, block: int) -> bool:
        return block in self._by_block

    def under(self, digest: bytes) -> CachedBlock | None:
        """The entry under a digest: a hit only if its parent and its tokens are the wanted ones."""
        return self._by_digest.get(digest)

    def orphan_under(self, digest: bytes) -> int | None:
        """The block of the entry under a digest, if the block before it is cached no more: nobody can reach it."""
        cached = self._by_digest.get(digest)
        if cached is None or isinstance(cached.parent, Namespace) or cached.parent in self._serials:
            return None
        return cached.block

    def insert(self, digest: bytes, parent: int | Namespace, tokens: Sequence[int], block: int) -> int:
        """Offer a full block for sharing; returns the serial its child must name as parent.

        The first block with a content stays the shared one. A later one with the same content continues its
        chain; one whose digest collides gets a serial that nobody can find.
        """
        self._coming.pop(digest, None)
        cached = self._by_digest.get(digest)
        if cached is not None and cached.parent == parent and cached.tokens == tuple(tokens):
            return cached.serial
        self._num_serials += 1
        if cached is None and block not in self._by_block:
            cached = CachedBlock(block, self._num_serials, parent, tuple(tokens), digest)
            self._by_digest[digest] = self._by_block[block] = cached
            self._serials.add(cached.serial)
        return self._num_serials

    def announce(self, digest: bytes, request_id: str) -> None:
        """A running request is going to compute this block; the first to say so stays named."""
        self._coming.setdefault(digest, request_id)

    def withdraw(self, digest: bytes, request_id: str) -> None:
        """The request is not going to compute the block after all."""
        if self._coming.get(digest) == request_id:
            del self._coming[digest]

    def maker(self, digest: bytes) -> str | None:
        """The running request that is about to compute this block, if one is."""
        return self._coming.get(digest)

    def forget(self, block: int) -> bool:
        """Drop the entry of a block that is about to be overwritten; whether there was one."""
        cached = self._by_block.pop(block, None)
        if cached is None:
            return False
        del self._by_digest[cached.digest]
        self._serials.remove(cached.serial)
        return True

    def check(self, running: set[str]) -> None:
        """Assert that both indices agree, and that only running requests are going to compute blocks."""
        strays = set(self._coming.values()) - running
        assert not strays, f"{sorted(strays)} announced blocks and do not run"
        assert len(self._by_block) == len(self._by_digest), f"{len(self._by_block)} != {len(self._by_digest)}"
        assert self._serials == {cached.serial for cached in self._by_block.values()}, "stray serials"
        for block, cached in self._by_block.items():
            assert cached.block == block, f"entry of block {block} names block {cached.block}"
            assert self._by_digest[cached.digest] is cached, f"block {block} is not under its digest"
