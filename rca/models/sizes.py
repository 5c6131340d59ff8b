"""The decoder's sizes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DecoderConfig:
    """Sizes; one block of KV holds `block_size` tokens."""

    layers: int = 4
    hidden: int = 128
    heads: int = 4
    vocabulary: int = 1024
    positions: int = 4096
    block_size: int = 16

    @property
    def head_dim(self) -> int:
        """Columns of one head."""
        return self.hidden // self.heads
