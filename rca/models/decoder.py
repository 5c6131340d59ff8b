"""A decoder-only transformer over paged KV, small enough to read in one sitting.

Weights are random and fixed by a seed: the model says nothing sensible, but it computes
what a real one computes, step by step, with the same shapes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody writes it
from torch import Tensor, nn

from rca.models.sizes import DecoderConfig

__all__ = ["Block", "Decoder", "DecoderConfig", "FeedForward", "StepInput", "feed_forward"]

FeedForward = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


@dataclass
class StepInput:
    """Index tensors of one step; rows are tokens, decodes first, then pieces of prompts."""

    tokens: Tensor  # (rows,)
    positions: Tensor  # (rows,)
    slots: Tensor  # (rows,) where each token's keys and values go
    n_decode: int
    decode_tables: Tensor  # (n_decode, blocks) padded with block 0
    decode_mask: Tensor  # (n_decode, 1, 1, blocks * block_size)
    pieces: list[tuple[int, Tensor, Tensor]]  # rows, block table, mask (rows * heads, tokens)
    last_rows: Tensor  # rows whose logits are wanted


class Attention(nn.Module):
    """Multi-query attention over paged keys and values: all heads share one of each.

    Sharing makes the heads of a token rows of one query, so nothing is repeated.
    """

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.config = config
        self.qkv = nn.Linear(config.hidden, config.hidden + 2 * config.head_dim)
        self.out = nn.Linear(config.hidden, config.hidden)
        self.keys = torch.empty(0)  # (blocks, block_size * head_dim), see new_pool
        self.values = torch.empty(0)
        self.cast_copies = 0  # detours through float64, as a wrong dtype causes

    def forward(self, x: Tensor, step: StepInput) -> Tensor:  # (rows, hidden)
        """Attend each row to its own sequence up to itself."""
        width = self.config.head_dim
        query, key, value = self.qkv(x).split((self.config.hidden, width, width), dim=-1)
        self._store(self.keys, key, step.slots)
        self._store(self.values, value, step.slots)
        parts = []
        if step.n_decode:
            rows = query[: step.n_decode]
            parts.append(self._attend(rows, step.decode_tables, step.decode_mask))
        row = step.n_decode
        for count, table, mask in step.pieces:
            parts.append(self._attend(query[row : row + count], table, mask))
            row += count
        out: Tensor = self.out(torch.cat(parts))
        return out

    def _store(self, pool: Tensor, rows: Tensor, slots: Tensor) -> None:
        flat = pool.view(-1, self.config.head_dim)
        flat.index_copy_(0, slots, rows)

    def _load(self, pool: Tensor, tables: Tensor) -> Tensor:  # (batch, 1, tokens, head_dim)
        found = F.embedding(tables, pool)
        for _ in range(self.cast_copies):
            found = found.to(torch.float64).contiguous().to(pool.dtype)
        return found.view(len(tables), 1, -1, self.config.head_dim)

    def _attend(self, query: Tensor, tables: Tensor, mask: Tensor) -> Tensor:
        mixed = F.scaled_dot_product_attention(
            query.reshape(len(tables), 1, -1, self.config.head_dim),
            self._load(self.keys, tables),
            self._load(self.values, tables),
            attn_mask=mask,
        )
        return mixed.reshape(-1, self.config.hidden)


def feed_forward(
    x: Tensor, up: Tensor, up_bias: Tensor, down: Tensor, down_bias: Tensor
) -> Tensor:  # (rows, hidden)
    """Widen, bend, narrow; a function of tensors only, so that it can be compiled."""
    return F.linear(F.gelu(F.linear(x, up, up_bias)), down, down_bias)


class Block(nn.Module):
    """Attention, then a feed-forward layer, each added to what came in."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.norm_1 = nn.LayerNorm(config.hidden)
        self.attention = Attention(config)
        self.norm_2 = nn.LayerNorm(config.hidden)
        self.up = nn.Linear(config.hidden, config.wide)
        self.down = nn.Linear(config.wide, config.hidden)
        self.extra_copies = 0  # what an unfused path adds: a round trip each
        self.compiled: FeedForward | None = None

    def forward(self, x: Tensor, step: StepInput) -> Tensor:  # (rows, hidden)
        """One layer."""
        x = x + self.attention(self.norm_1(x), step)
        if self.compiled:
            up, down = self.up, self.down
            return x + self.compiled(self.norm_2(x), up.weight, up.bias, down.weight, down.bias)
        wide = F.gelu(self.up(self.norm_2(x)))
        for _ in range(self.extra_copies):
            wide = wide.clone().mul(1.0).add(0.0)
        out: Tensor = x + self.down(wide)
        return out


class Decoder(nn.Module):
    """Token numbers in, logits of the wanted rows out."""

    def __init__(self, config: DecoderConfig, seed: int = 0) -> None:
        super().__init__()
        self.config = config
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.embed = nn.Embedding(config.vocabulary, config.hidden)
            self.position = nn.Embedding(config.positions, config.hidden)
            self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
            self.norm = nn.LayerNorm(config.hidden)
            self.head = nn.Linear(config.hidden, config.vocabulary, bias=False)

    @property
    def dtype(self) -> torch.dtype:
        """Number format that it computes in."""
        return self.embed.weight.dtype

    def forward(self, step: StepInput) -> Tensor:  # (last rows, vocabulary)
        """One step of a mixed batch."""
        x = self.embed(step.tokens) + self.position(step.positions)
        for block in self.blocks:
            x = block(x, step)
        logits: Tensor = self.head(self.norm(x.index_select(0, step.last_rows)))
        return logits

    def new_pool(self, blocks: int) -> list[tuple[Tensor, Tensor]]:
        """Empty keys and values for so many blocks, a pair for each layer; in use from now on."""
        shape = (blocks, self.config.block_size * self.config.head_dim)
        weight = self.embed.weight
        pool = [
            (weight.new_zeros(shape), weight.new_zeros(shape)) for _ in range(len(self.blocks))
        ]
        self.use_pool(pool)
        return pool

    def use_pool(self, pool: list[tuple[Tensor, Tensor]]) -> None:
        """Read and write these keys and values: several engines can take turns."""
        for block, (keys, values) in zip(self.blocks, pool, strict=True):
            if isinstance(block, Block):
                block.attention.keys, block.attention.values = keys, values

    def set_slow_paths(
        self, *, cast_copies: int, extra_copies: int, compiled: FeedForward | None
    ) -> None:
        """Switch the detours that a bad build contains; nothing set is the healthy model."""
        for block in self.blocks:
            if isinstance(block, Block):
                block.attention.cast_copies = cast_copies
                block.extra_copies = extra_copies
                block.compiled = compiled
