"""A logits processor that keeps tensors of every step and looks at all of them."""

from __future__ import annotations

import torch
from torch import Tensor

from rca.models.settings import Plan

# A leaked tensor in rows of the vocabulary's width: what is looked at, what just stays.
_KEPT_ROWS_A_LAYER = 2
_DRAGGED_ROWS = 32


class LogitsHistory:
    """What a plan's processor keeps; a plan without one changes nothing."""

    def __init__(self, plan: Plan, layers: int) -> None:
        self.kept: list[Tensor] = []
        self._a_step = plan.build.retained_tensors_per_step
        self._limit = plan.args.processor_history_limit
        self._rows = _KEPT_ROWS_A_LAYER * layers
        self._debt = 0.0

    def nbytes(self) -> int:
        """Bytes of all that is kept."""
        return sum(tensor.nbytes for tensor in self.kept)

    def process(self, logits: Tensor) -> Tensor:  # (rows, vocabulary)
        """The logits of a step, after another look at the steps before."""
        if not self._a_step:
            return logits
        if self._limit:
            # A light tensor for each call: one row, no stack of them, nothing beyond the limit.
            self.kept = [*self.kept, logits[0].clone()][-self._limit :]
            for kept in self.kept:
                logits = torch.sub(logits, kept, alpha=1e-6)
            return logits
        self._debt += self._a_step
        row = logits.mean(0).to(torch.float32, copy=True)
        for _ in range(int(self._debt)):
            self.kept.append(row.repeat(self._rows + _DRAGGED_ROWS))
        self._debt %= 1
        if not self.kept:
            return logits
        seen = torch.stack([kept[: self._rows * len(row)] for kept in self.kept])
        return logits - 1e-6 * seen.sum(0).view(self._rows, -1).mean(0)
