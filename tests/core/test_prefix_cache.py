from __future__ import annotations

from dataclasses import fields

from hypothesis import given
from hypothesis import strategies as st

from noria.core.prefix import CachedBlock, HashChain, Namespace, PrefixCache, sha256_digest

HERE = Namespace("model")
NUM_FIELDS = len(fields(Namespace))


def find(
    cache: PrefixCache, digest: bytes, parent: int | Namespace, tokens: tuple[int, ...]
) -> CachedBlock | None:
    """What a look-up does with an entry."""
    cached = cache.under(digest)
    return cached if cached is not None and (cached.parent, cached.tokens) == (parent, tokens) else None


def test_a_block_is_found_by_its_tokens_and_parent() -> None:
    cache = PrefixCache()
    serial = cache.insert(b"d1", HERE, (1, 2), block=7)
    child = cache.insert(b"d2", serial, (3, 4), block=8)
    assert find(cache, b"d1", HERE, (1, 2)).block == 7
    assert find(cache, b"d2", serial, (3, 4)).serial == child


def test_the_same_digest_with_other_tokens_is_no_hit() -> None:
    cache = PrefixCache()
    cache.insert(b"same", HERE, (1, 2), block=0)
    assert find(cache, b"same", HERE, (9, 9)) is None


def test_the_same_digest_and_tokens_under_another_parent_is_no_hit() -> None:
    cache = PrefixCache()
    first = cache.insert(b"a", HERE, (1, 2), block=0)
    second = cache.insert(b"b", HERE, (3, 4), block=1)
    cache.insert(b"same", first, (5, 6), block=2)
    assert find(cache, b"same", second, (5, 6)) is None
    assert find(cache, b"same", first, (5, 6)).block == 2


def test_a_colliding_block_gets_a_serial_that_nobody_can_find() -> None:
    cache = PrefixCache()
    cache.insert(b"same", HERE, (1, 2), block=0)
    other = cache.insert(b"same", HERE, (9, 9), block=1)
    cache.insert(b"child", other, (3, 4), block=2)
    assert not cache.holds(1)
    assert find(cache, b"same", HERE, (1, 2)).block == 0
    assert find(cache, b"child", find(cache, b"same", HERE, (1, 2)).serial, (3, 4)) is None


def test_a_second_block_with_the_same_content_continues_the_first_ones_chain() -> None:
    cache = PrefixCache()
    first = cache.insert(b"d", HERE, (1, 2), block=0)
    assert cache.insert(b"d", HERE, (1, 2), block=5) == first
    assert not cache.holds(5)


def test_a_forgotten_block_is_not_found() -> None:
    cache = PrefixCache()
    cache.insert(b"d", HERE, (1, 2), block=0)
    assert cache.forget(0) is True
    assert cache.forget(0) is False
    assert find(cache, b"d", HERE, (1, 2)) is None


def test_an_entry_whose_parent_was_forgotten_is_an_orphan() -> None:
    cache = PrefixCache()
    first = cache.insert(b"a", HERE, (1, 2), block=0)
    cache.insert(b"b", first, (3, 4), block=1)
    assert cache.orphan_under(b"b") is None
    cache.forget(0)
    assert cache.orphan_under(b"b") == 1
    assert cache.orphan_under(b"a") is None


@given(st.lists(st.tuples(*[st.text()] * NUM_FIELDS), min_size=2, max_size=2, unique=True))
def test_different_namespaces_never_read_the_same(both: list[tuple[str, ...]]) -> None:
    first, second = (Namespace(*values) for values in both)
    assert first.encode() != second.encode()


def test_the_same_word_in_another_field_is_another_namespace() -> None:
    chains = [HashChain(Namespace(**{"model": "m", field.name: "x"}), 2) for field in fields(Namespace)]
    assert len({chain.digest(0, [1, 2]) for chain in chains}) == NUM_FIELDS


@given(st.lists(st.integers(0, 2**32 - 1), min_size=4, max_size=12), st.integers(1, 3))
def test_a_digest_depends_on_everything_before_it(tokens: list[int], block_size: int) -> None:
    last = len(tokens) // block_size - 1
    changed = [tokens[0] ^ 1, *tokens[1:]]
    assert HashChain(HERE, block_size).digest(last, tokens) != HashChain(HERE, block_size).digest(
        last, changed
    )
    assert HashChain(HERE, block_size).digest(last, tokens) == HashChain(HERE, block_size).digest(
        last, list(tokens)
    )


def test_the_digest_is_sha256_chained_over_the_parent() -> None:
    import hashlib

    assert sha256_digest(b"p" * 32, b"c") == hashlib.sha256(b"p" * 32 + b"c").digest()
