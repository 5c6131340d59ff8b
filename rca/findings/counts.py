"""Tests and intervals of counts, exact where that is cheap."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_Z = 1.959964
_TIE = 1e-7
"""Tables this close in probability count as equally likely, as in R's fisher.test."""


def fisher(hits: Counts, n: int, other_hits: Counts, other_n: int) -> Floats:
    """Two-sided p-values of Fisher's exact test that two shares are equal.

    Args:
        hits: Members of the first group with the attribute, one for each test; n is its size.
        other_hits: The same of the second group.
    """
    logs = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, n + other_n + 1)))])

    def choose(total: Counts | int, picked: Counts) -> Floats:
        return np.asarray(logs[total] - logs[picked] - logs[np.asarray(total) - picked])

    found = np.empty(len(hits))
    for i, (a, b) in enumerate(zip(hits, other_hits, strict=True)):
        both = int(a + b)
        cells = np.arange(max(0, both - other_n), min(n, both) + 1)
        log_p = choose(n, cells) + choose(other_n, both - cells)
        p = np.exp(log_p - log_p.max())
        here = p[int(a) - int(cells[0])]
        found[i] = p[p <= here * (1 + _TIE)].sum() / p.sum()
    return np.minimum(found, 1.0)


def discovery_rates(p_values: Floats) -> Floats:
    """Benjamini and Hochberg's adjusted p-values, in the order given."""
    order = np.argsort(p_values, kind="stable")
    steps = p_values[order] * len(p_values) / np.arange(1, len(p_values) + 1)
    adjusted = np.empty(len(p_values))
    adjusted[order] = np.minimum(np.minimum.accumulate(steps[::-1])[::-1], 1.0)
    return adjusted


def lift(
    hits: Counts, n: int, other_hits: Counts, other_n: int
) -> tuple[Floats, Floats, Floats]:
    """Ratio of two shares with its 95 % interval (Katz); half a member is added where one is zero."""
    empty = np.where((hits == 0) | (other_hits == 0), 0.5, 0.0)
    a, b = hits + empty, other_hits + empty
    sizes = n + 2 * empty, other_n + 2 * empty
    ratio = np.log(a / sizes[0]) - np.log(b / sizes[1])
    error = np.sqrt(np.maximum(1 / a - 1 / sizes[0] + 1 / b - 1 / sizes[1], 0.0))
    low, high = ratio - _Z * error, ratio + _Z * error
    return np.exp(ratio), np.exp(low), np.exp(high)
