from __future__ import annotations

import pytest
import torch

from noria.kernels.ops import CacheShape
from noria.kernels.torch_ops.cache import KvCache
from noria.kernels.torch_ops.scratch import Scratch

SHAPE = CacheShape(num_layers=2, num_kv_heads=3, head_dim=4, block_size=5, num_blocks=6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_what_is_written_is_read_back_in_the_dtype_of_the_cache(dtype: torch.dtype) -> None:
    cache = KvCache(SHAPE, dtype, "cpu")
    slots = torch.tensor([7, 0, 29])
    keys, values = torch.randn(3, 3, 4), torch.randn(3, 3, 4)
    cache.write(1, cache.rows(slots), keys, values)
    found_keys, found_values = cache.gather(
        1, cache.rows(torch.stack([slots, slots.flip(0)])), Scratch("cpu")
    )
    for found, written in ((found_keys, keys), (found_values, values)):
        expected = written.to(dtype).float().transpose(0, 1)
        assert torch.equal(found.view(2, 3, 3, 4)[0], expected)
        assert torch.equal(found.view(2, 3, 3, 4)[1], expected.flip(1))


def test_the_slot_of_no_token_is_zero_whatever_the_memory_held() -> None:
    cache = KvCache(SHAPE, torch.float32, "cpu")
    keys, values = cache.gather(0, cache.rows(torch.tensor([[cache.zero_slot] * 2])), Scratch("cpu"))
    assert not keys.any()
    assert not values.any()


def filled() -> KvCache:
    cache = KvCache(SHAPE, torch.float32, "cpu")
    slots = torch.arange(30)
    for layer in range(2):
        keys = torch.randn(30, 3, 4)
        cache.write(layer, cache.rows(slots), keys, keys * 2)
    return cache


def block(cache: KvCache, layer: int, index: int) -> torch.Tensor:
    slots = torch.arange(index * 5, index * 5 + 5)
    return torch.stack(cache.gather(layer, cache.rows(slots[None]), Scratch("cpu")))


def test_copying_blocks_copies_all_layers_and_nothing_else() -> None:
    cache = filled()
    before = [[block(cache, layer, index) for index in range(6)] for layer in range(2)]
    cache.copy_blocks([(4, 1), (0, 5)])
    for layer in range(2):
        for index, source in enumerate([0, 4, 2, 3, 4, 0]):
            assert torch.equal(block(cache, layer, index), before[layer][source])


def test_blocks_are_copied_in_the_order_given() -> None:
    cache = filled()
    first = block(cache, 0, 0)
    cache.copy_blocks([(0, 1), (1, 2)])
    assert torch.equal(block(cache, 0, 2), first)
