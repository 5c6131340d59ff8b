"""Blocks are shared by content, counted, and reused oldest first."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rca.models.kv_cache import BlockPool, chain_hashes


def _fill(pool: BlockPool, tokens: list[int]) -> list[int]:
    keys = chain_hashes(tokens, 4, 0)
    blocks = pool.take(len(keys))
    assert blocks is not None
    for block, key in zip(blocks, keys, strict=True):
        pool.remember(block, key)
    return blocks


def test_a_hash_covers_everything_before_its_block() -> None:
    one, other = chain_hashes([1] * 8, 4, 0), chain_hashes([2] * 4 + [1] * 4, 4, 0)
    assert one[1] != other[1]
    assert chain_hashes([1] * 11, 4, 0) == one  # an incomplete block has no hash
    assert chain_hashes([1] * 8, 4, salt=1) != one


def test_a_freed_prefix_is_found_again() -> None:
    pool = BlockPool(8)
    blocks = _fill(pool, list(range(8)))
    pool.release(blocks)
    assert pool.usage == 0.0
    found = pool.find(chain_hashes([*range(8), 99, 98, 97, 96], 4, 0))
    assert found == blocks
    pool.hold(found)
    assert pool.n_free == 6


def test_the_end_of_a_prefix_is_evicted_before_its_beginning() -> None:
    pool = BlockPool(3)
    first, second = _fill(pool, list(range(8)))
    pool.release([first, second])
    taken = pool.take(2)  # the block that was never used, then the chain's end
    assert taken == [2, second]
    assert pool.evictions == 1
    assert pool.find(chain_hashes(list(range(8)), 4, 0)) == [first]


def test_too_many_blocks_are_refused_whole() -> None:
    pool = BlockPool(4)
    assert pool.take(5) is None
    assert pool.n_free == 4


def test_unused_content_leaves_first_when_asked_to() -> None:
    pool = BlockPool(2, evict_unused_first=True)
    (hot,), (cold,) = _fill(pool, [1] * 4), _fill(pool, [2] * 4)
    pool.hold([hot])
    pool.release([hot])
    pool.release([hot])
    pool.release([cold])
    assert pool.take(1) == [cold]


@given(st.lists(st.integers(0, 5), max_size=40))
def test_no_block_is_lost_or_held_twice(sizes: list[int]) -> None:
    pool = BlockPool(16)
    held: list[list[int]] = []
    for size in sizes:
        blocks = pool.take(size)
        if blocks is None:
            pool.release(held.pop(0))
        else:
            held.append(blocks)
        flat = [block for blocks in held for block in blocks]
        assert len(flat) == len(set(flat))
        assert pool.n_free + len(flat) == 16
