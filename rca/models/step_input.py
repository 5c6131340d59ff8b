"""A scheduled batch → the index tensors that the decoder reads."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rca.models.decoder import StepInput
from rca.models.scheduler import Batch, Slice


def step_input(batch: Batch, *, block_size: int, heads: int, device: torch.device) -> StepInput:
    """Rows are tokens, decodes first, then pieces of prompts."""
    size = block_size
    decodes, prefills = batch.decodes, batch.prefills
    tokens: list[int] = []
    positions: list[int] = []
    slots: list[int] = []
    last: list[int] = []
    for piece in [*decodes, *prefills]:
        request, end = piece.request, piece.start + piece.count
        tokens += request.tokens[piece.start : end]
        positions += range(piece.start, end)
        slots += [
            request.blocks[at // size] * size + at % size for at in range(piece.start, end)
        ]
        if piece.samples:
            last.append(len(tokens) - 1)
    tables, mask = _decode_tables(decodes, size, device)
    return StepInput(
        tokens=_tensor(tokens, device),
        positions=_tensor(positions, device),
        slots=_tensor(slots, device),
        n_decode=len(decodes),
        decode_tables=tables,
        decode_mask=mask,
        pieces=[_piece(piece, size, heads, device) for piece in prefills],
        last_rows=_tensor(last, device),
    )


def _decode_tables(
    decodes: Sequence[Slice], size: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    counts = [piece.start // size + 1 for piece in decodes]
    width = max(counts, default=0)
    tables = [
        piece.request.blocks[:count] + [0] * (width - count)
        for piece, count in zip(decodes, counts, strict=True)
    ]
    ends = _tensor([piece.start for piece in decodes], device)
    at = torch.arange(width * size, device=device)
    return _tensor(tables, device), (at <= ends[:, None])[:, None, None]


def _piece(
    piece: Slice, size: int, heads: int, device: torch.device
) -> tuple[int, Tensor, Tensor]:
    end = piece.start + piece.count
    blocks = piece.request.blocks[: -(-end // size)]
    at = torch.arange(len(blocks) * size, device=device)
    rows = torch.arange(piece.start, end, device=device)
    mask = at <= rows.repeat_interleave(heads)[:, None]
    return piece.count, _tensor([blocks], device), mask


def _tensor(values: Sequence[int] | Sequence[list[int]], device: torch.device) -> Tensor:
    return torch.tensor(values, dtype=torch.long, device=device)
