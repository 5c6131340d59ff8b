"""Paged KV blocks with a ref-counted prefix cache.

Full blocks are known by a hash chained over all tokens before them, so equal prefixes
share blocks. A freed block keeps its content until its turn comes in the LRU order.
Only block numbers live here; the tensors belong to the worker.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence


def chain_hashes(tokens: Sequence[int], block_size: int, salt: int) -> list[int]:
    """Hashes of the full blocks of `tokens`, each over everything before it as well."""
    hashes: list[int] = []
    parent = salt
    for start in range(0, len(tokens) - block_size + 1, block_size):
        parent = hash((parent, *tokens[start : start + block_size]))
        hashes.append(parent)
    return hashes


class BlockPool:
    """Blocks 0 … n-1: free, held (counted), or free with content that can be found again."""

    def __init__(self, n_blocks: int, *, evict_unused_first: bool = False) -> None:
        self.n_blocks = n_blocks
        self.evictions = 0
        self._evict_unused_first = evict_unused_first
        self._refs = [0] * n_blocks
        self._hits = [0] * n_blocks
        self._hash_of: dict[int, int] = {}
        self._block_of: dict[int, int] = {}
        self._free: OrderedDict[int, None] = OrderedDict((b, None) for b in range(n_blocks))

    @property
    def n_free(self) -> int:
        """Blocks that can be taken, cached content included."""
        return len(self._free)

    @property
    def usage(self) -> float:
        """Share of the pool held by requests, 0 … 1."""
        return 1.0 - self.n_free / self.n_blocks if self.n_blocks else 1.0

    def find(self, hashes: Sequence[int]) -> list[int]:
        """The longest run of cached blocks that starts the chain; not yet held."""
        found: list[int] = []
        for key in hashes:
            block = self._block_of.get(key)
            if block is None:
                break
            found.append(block)
        return found

    def hold(self, blocks: Sequence[int]) -> None:
        """Count one more holder for each block, and one more hit."""
        for block in blocks:
            if self._refs[block] == 0:
                self._free.pop(block)
            self._refs[block] += 1
            self._hits[block] += 1

    def take(self, count: int) -> list[int] | None:
        """`count` blocks for new content, oldest free first; None when there are too few."""
        if count > len(self._free):
            return None
        taken: list[int] = []
        for _ in range(count):
            block = self._oldest()
            del self._free[block]
            self._forget(block)
            self._refs[block] = 1
            taken.append(block)
        return taken

    def release(self, blocks: Sequence[int]) -> None:
        """Give blocks back; the last of a chain is reused first, a prefix lives longest."""
        for block in reversed(blocks):
            self._refs[block] -= 1
            if self._refs[block] == 0:
                self._free[block] = None
                if block not in self._hash_of:
                    self._free.move_to_end(block, last=False)

    def remember(self, block: int, key: int) -> None:
        """Make a full block findable; the first block with a content keeps the name."""
        if key not in self._block_of and block not in self._hash_of:
            self._block_of[key] = block
            self._hash_of[block] = key

    def _oldest(self) -> int:
        if self._evict_unused_first:
            for block in self._free:
                if block not in self._hash_of or self._hits[block] == 0:
                    return block
        return next(iter(self._free))

    def _forget(self, block: int) -> None:
        key = self._hash_of.pop(block, None)
        self._hits[block] = 0
        if key is not None:
            del self._block_of[key]
            self.evictions += 1
