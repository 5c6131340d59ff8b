"""The scan for an incident: the stretch of bins in which symptoms left their healthy range.

Each symptom is compared with the healthy reference on its own robust scale, the strongest of them
make one score for each bin of time, and the stretch with the largest sum of scores above a bar is
the incident. The bar for the sum is set by the same scan on the healthy reference itself, since a
fixed one does not carry over between systems.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rca.signals import Points, Signal, Values, meanings

BAR = 0.45
"""Score of a bin, 0 to 1, above which it speaks for an incident."""
MIN_SUM = 2.0
"""Smallest sum above the bar that counts: about four bins far out of range."""
SELF_FACTOR = 1.3
"""The sum must exceed the reference's own largest sum by this factor."""
MIN_RATIO = 1.12
"""A latency must have grown by this factor, both against the reference and against the lead-in."""
_AS_GOOD = 0.8
"""Share of the best fit that a start at a recorded change must reach to be taken."""
_MAX_BINS = 4000
_FEWEST_BINS = 20
_REQUESTS_A_BIN = 8
_Grid = tuple[Values, Values]
"""Values and numbers of observations, bin by bin."""
_LATENCY_FLOOR = 0.06
_LATENCY_CV = 0.8
"""Coefficient of variation assumed for the latency of single requests."""
_LEVEL_FLOOR = 0.02


@dataclass(frozen=True)
class Scan:
    """Result of a scan: bins [first, last], or None when nothing passed."""

    start_ns: int
    step_ns: int
    found: list[tuple[int, int, float]]
    threshold: float
    best: float


def find(symptoms: Sequence[Signal], marks_ns: Sequence[int] = ()) -> Scan:
    """Scan the incident side of the symptoms; see the module's text.

    Args:
        symptoms: Signals of the layer 'symptom'.
        marks_ns: Times of changes: a start that is nearly as good as the best and has one is taken.
    """
    start, step, bins = _grid(symptoms)
    with_baseline = any(len(s.baseline.ts_ns) >= 3 for s in symptoms)
    if with_baseline:
        references = [_side_grid(s.baseline, step) for s in symptoms]
    else:
        references = _quiet_references(symptoms, start, step, bins)
    levels = [values for values, _ in references]
    score = _score(
        symptoms, levels, [s.incident.counted_on_grid(start, step, bins) for s in symptoms]
    )
    own = max(_own_sum(symptoms, references), 0.0)
    marks = sorted({(m - start) // step for m in marks_ns})
    threshold = max(MIN_SUM, SELF_FACTOR * own) * (1.0 if with_baseline else 1.5)
    found = []
    for first, last, total in _stretches(score - BAR):
        if total >= threshold and _matters(symptoms, levels, start, step, first, last):
            found.append((*_sharpened(score, first, last, marks), total))
        if len(found) == 3:
            break
    best = max((t for _, _, t in _stretches(score - BAR)), default=0.0)
    return Scan(start, step, found, threshold, best)


def _grid(symptoms: Sequence[Signal]) -> tuple[int, int, int]:
    """Start, step and number of bins: the metrics' own step, or one that puts requests into bins."""
    times = [s.incident.ts_ns for s in symptoms]
    start, end = min(int(t[0]) for t in times), max(int(t[-1]) for t in times)
    steps = [
        int(np.median(np.diff(s.incident.ts_ns)))
        for s in symptoms
        if s.source == "metrics" and len(s.incident.ts_ns) > 2
    ]
    step = int(np.median(steps)) if steps else (end - start) // 60
    step = max(step, 1_000_000_000, (end - start) // _MAX_BINS + 1)
    step *= _widening(symptoms, start, step, (end - start) // step + 1)
    return start - step // 2, step, int((end - start) // step) + 2


def _widening(symptoms: Sequence[Signal], start: int, step: int, bins: int) -> int:
    """How many steps make one bin, so that a mean latency rests on enough requests."""
    counts = [
        s.incident.counted_on_grid(start, step, int(bins))[1]
        for s in symptoms
        if s.role in ("e2e_latency", "gateway_latency", "ttft")
    ]
    if not counts:
        return 1
    medians = [float(np.median(c[c > 0])) for c in counts if (c > 0).any()]
    typical = float(np.median(medians)) if medians else float("inf")
    return int(min(max(1, np.ceil(_REQUESTS_A_BIN / typical)), max(1, bins // _FEWEST_BINS)))


def _side_grid(points: Points, step: int) -> _Grid:
    if not len(points.ts_ns):
        return np.array([]), np.array([])
    start = int(points.ts_ns[0]) - step // 2
    bins = int((points.ts_ns[-1] - start) // step) + 1
    # A baseline with gaps of days must not become millions of bins: points are kept in order instead.
    if bins > _MAX_BINS:
        return points.values, points.den
    grid, counts = points.counted_on_grid(start, step, bins)
    known = ~np.isnan(grid)
    return grid[known], counts[known]


def _quiet_references(
    symptoms: Sequence[Signal], start: int, step: int, bins: int
) -> list[_Grid]:
    """Without a baseline: the third of the time in which latency was lowest, as one stretch."""
    counted = [s.incident.counted_on_grid(start, step, bins) for s in symptoms]
    grids = [grid for grid, _ in counted]
    level = np.zeros(bins)
    seen = np.zeros(bins)
    for grid in grids:
        known = ~np.isnan(grid) & (grid > 0)
        if known.sum() > 3:
            centred = np.log(grid[known]) - np.median(np.log(grid[known]))
            level[known] += centred
            seen[known] += 1
    mean = np.where(seen > 0, level / np.maximum(seen, 1), 0.0)
    width = max(bins // 3, min(bins, 4))
    sums = np.convolve(mean, np.ones(width) / width, mode="valid")
    quiet = slice(int(np.argmin(sums)), int(np.argmin(sums)) + width)
    return [(g[quiet][~np.isnan(g[quiet])], n[quiet][~np.isnan(g[quiet])]) for g, n in counted]


def _scaled(signal: Signal, values: Values) -> Values:
    """Latencies by their logarithm, so that a doubling counts the same at every level."""
    if meanings()[signal.role].unit == "s":
        return np.log(np.maximum(values, 1e-9))
    return values


def _z(signal: Signal, reference: Values, values: Values, counts: Values) -> Values:
    """Robust deviations of `values` from the reference; a mean of few observations may stray."""
    base = _scaled(signal, reference)
    centre = float(np.median(base))
    spread = 1.4826 * float(np.median(np.abs(base - centre)))
    floor = _LATENCY_FLOOR if meanings()[signal.role].unit == "s" else _LEVEL_FLOOR
    spread = max(spread, floor, 0.7 * float(np.std(base)))
    unit = meanings()[signal.role].unit
    if unit == "s":
        chance = _LATENCY_CV / np.sqrt(np.maximum(counts, 1.0))
    elif unit == "ratio":
        share = min(max(float(np.mean(base)), _LEVEL_FLOOR), 0.5)
        chance = np.sqrt(share * (1 - share) / np.maximum(counts, 1.0))
    else:
        chance = np.zeros(len(values))
    return (_scaled(signal, values) - centre) / np.maximum(spread, chance)


def _score(
    symptoms: Sequence[Signal], references: Sequence[Values], grids: Sequence[_Grid]
) -> Values:
    """One score for each bin: the mean of the strongest third of the roles, 0 to 1, smoothed."""
    by_role: dict[str, Values] = {}
    for signal, reference, (grid, counts) in zip(symptoms, references, grids, strict=True):
        if len(reference) < 3:
            continue
        with np.errstate(invalid="ignore"):
            up = np.tanh(np.maximum(_z(signal, reference, grid, counts), 0.0) / 4.0)
        before = by_role.get(signal.role)
        by_role[signal.role] = up if before is None else np.fmax(before, up)
    bins = max((len(g) for g, _ in grids), default=0)
    if not by_role:
        return np.zeros(bins)
    stack = np.vstack(list(by_role.values()))
    strongest = max(1, round(len(stack) / 3))
    known = ~np.isnan(stack)
    ranked = -np.sort(-np.where(known, stack, -1.0), axis=0)[:strongest]
    counted = np.maximum((ranked >= 0).sum(axis=0), 1)
    score = np.where(known.any(axis=0), np.maximum(ranked, 0).sum(axis=0) / counted, BAR)
    padded = np.pad(score, 1, mode="edge")
    smooth: Values = np.median(np.vstack([padded[:-2], padded[1:-1], padded[2:]]), axis=0)
    return smooth


def _own_sum(symptoms: Sequence[Signal], references: Sequence[_Grid]) -> float:
    """Largest sum of the scan on the reference, each half judged by the other."""
    best = 0.0
    for side in (0, 1):
        train, test = [], []
        for values, counts in references:
            cut = len(values) // 2 if len(values) >= 8 else len(values)
            halves = [(values[:cut], counts[:cut]), (values[cut:], counts[cut:])]
            train.append(halves[side][0])
            test.append(halves[1 - side])
        length = max((len(v) for v, _ in test), default=0)
        if length >= 4:
            grids = [_padded(v, n, length) for v, n in test]
            for _, _, total in _stretches(_score(symptoms, train, grids) - BAR)[:1]:
                best = max(best, total)
    return best


def _padded(values: Values, counts: Values, length: int) -> _Grid:
    pad = (0, length - len(values))
    return np.pad(values, pad, constant_values=np.nan), np.pad(counts, pad, constant_values=1.0)


def _stretches(gain: Values) -> list[tuple[int, int, float]]:
    """Disjoint stretches of largest sum, best first (first bin, last bin, sum)."""
    found: list[tuple[int, int, float]] = []
    left = gain.copy()
    for _ in range(4):
        best, first, last = 0.0, 0, -1
        total, begin = 0.0, 0
        for i, g in enumerate(left):
            total += float(g)
            if total <= 0:
                total, begin = 0.0, i + 1
            elif total > best:
                best, first, last = total, begin, i
        if last < 0:
            break
        found.append((first, last, best))
        left[first : last + 1] = -np.inf
    return _merged(found)


def _merged(found: list[tuple[int, int, float]]) -> list[tuple[int, int, float]]:
    """Stretches that are parted by less than a quarter of what they span are one incident."""
    if not found:
        return []
    first, last, total = found[0]
    rest = []
    for a, b, more in found[1:]:
        gap = max(a - last, first - b) - 1
        if gap <= (max(b, last) - min(a, first)) / 4 and more >= total / 8:
            first, last, total = min(a, first), max(b, last), total + more
        else:
            rest.append((a, b, more))
    return [(first, last, total), *rest]


def _sharpened(
    score: Values, first: int, last: int, marks: Sequence[int] = ()
) -> tuple[int, int]:
    """The part of a stretch that differs most from all the rest: small troubles before it fall away.

    A box is fitted to the severity by least squares: the bins [a, b] within the stretch for which
    the variance between inside and outside is largest.
    """
    severity = np.sqrt(4.0 * np.arctanh(np.clip(score, 0.0, 0.9999)))
    total, bins = float(severity.sum()), len(severity)
    sums = np.concatenate(([0.0], np.cumsum(severity)))
    ends = np.arange(first, last + 2)
    inside = sums[ends][None, :] - sums[ends][:, None]
    n = (ends[None, :] - ends[:, None]).astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        gap = inside / n - (total - inside) / (bins - n)
        gain = np.where((n >= 2) & (n < bins) & (gap > 0), gap**2 * n * (bins - n), -1.0)
    a, b = np.unravel_index(int(np.argmax(gain)), gain.shape)
    if gain[a, b] < 0:
        return first, last
    best = float(gain[a, b])
    near = [m - first for m in marks if first <= m < int(ends[b]) - 1]
    marked = max(near, key=lambda m: float(gain[m, b]), default=int(a))
    if gain[marked, b] >= _AS_GOOD * best:
        a = np.intp(marked)
    return int(ends[a]), int(ends[b]) - 1


def _matters(
    symptoms: Sequence[Signal],
    references: Sequence[Values],
    start: int,
    step: int,
    first: int,
    last: int,
) -> bool:
    """Whether a latency or an error rate moved by more than a trifle, against all that is healthy."""
    low, high = start + first * step, start + (last + 1) * step
    for signal, reference in zip(symptoms, references, strict=True):
        inside = signal.incident.between(low, high)
        before = signal.incident.between(int(signal.incident.ts_ns[0]), low - 1)
        if not len(inside.ts_ns) or not len(reference):
            continue
        value, healthy = inside.pooled(), [float(np.mean(reference))]
        if len(before.ts_ns) >= 3:
            healthy.append(before.pooled())
        if meanings()[signal.role].unit == "s":
            if value >= MIN_RATIO * max(healthy):
                return True
        elif value >= max(healthy) + 2 * _LEVEL_FLOOR:
            return True
    return False
