"""The decoder's sizes."""

from __future__ import annotations

from dataclasses import dataclass

DTYPES = ("float32", "bfloat16")
"""What a CPU computes at about the same speed; float16 takes it three times as long."""


@dataclass(frozen=True)
class DecoderConfig:
    """Sizes; one block of KV holds `block_size` tokens."""

    layers: int = 4
    hidden: int = 128
    heads: int = 4
    vocabulary: int = 1024
    positions: int = 4096
    block_size: int = 16
    dtype: str = "float32"  # or another of DTYPES
    ffn: int = 0  # width of the feed-forward layer; 0: four times `hidden`

    @property
    def head_dim(self) -> int:
        """Columns of one head."""
        return self.hidden // self.heads

    @property
    def wide(self) -> int:
        """Width of the feed-forward layer."""
        return self.ffn or 4 * self.hidden
