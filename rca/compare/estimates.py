"""Figures with their 95 % intervals: quantiles, ratios, shares, spread, rates.

Neighbours in a queue are alike, and a thousand of them tell less than a thousand strangers would:
`inflation` measures by how much, and intervals of quantiles are widened by it.
"""

from __future__ import annotations

import math
import zlib
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]

RESAMPLES = 4000
TAIL = 10
"""Requests that must lie beyond a quantile before it has an interval."""
MIN_SPREAD = 100
_Z = 1.959963984540054
_LOW, _HIGH = 0.025, 0.975
_BATCHES = 20
_MIN_BINS, _MAX_BINS, _BIN_REQUESTS = 8, 60, 20
_SAME_LENGTH = 0.1


class Interval(NamedTuple):
    """Both ends of a 95 % interval; None where the data does not reach."""

    low: float | None
    high: float | None


class Change(NamedTuple):
    """Log-ratio of candidate to base and its interval; None where it cannot be had."""

    log_ratio: float | None
    low: float | None
    high: float | None


NONE = Change(None, None, None)


def rank(n: int, p: float) -> int:
    """Index of the p-quantile in n sorted values: ceil(p n) - 1."""
    return max(math.ceil(round(p * n, 9)) - 1, 0)


def quantile(ordered: Values, p: float) -> float | None:
    """The p-quantile of sorted values, one of them; None of nothing."""
    return float(ordered[rank(len(ordered), p)]) if len(ordered) else None


def inflation(arrived: Values, p: float) -> float:
    """By which factor requests in order of arrival vary more around a quantile than independent ones.

    Batches of neighbours are compared: how much does their share beyond the quantile vary, against
    the variance of independent draws. At least 1; 1 when there are too few to tell.
    """
    size = len(arrived) // _BATCHES
    if size < _BATCHES:
        return 1.0
    beyond = arrived > np.sort(arrived)[rank(len(arrived), p)]
    share = float(beyond.mean())
    if not 0 < share < 1:
        return 1.0
    batches = beyond[: size * _BATCHES].reshape(_BATCHES, size).mean(axis=1)
    return max(float(batches.var(ddof=1)) * size / (share * (1 - share)), 1.0)


def quantile_interval(ordered: Values, p: float, widened: float = 1.0) -> Interval:
    """Interval of a quantile from order statistics, whatever the distribution.

    Args:
        widened: What `inflation` says of the values.
    """
    from scipy.stats import binom

    n = len(ordered)
    if not n:
        return Interval(None, None)
    root = math.sqrt(widened)
    low, high = (
        n * p + (float(binom.ppf(side, n, p)) - n * p) * root for side in (_LOW, _HIGH)
    )
    low, high = math.floor(round(low, 9)), math.ceil(round(high, 9)) + 1
    return Interval(
        float(ordered[low - 1]) if low >= 1 else None,
        float(ordered[high - 1]) if high <= n else None,
    )


def has_tail(n: int, p: float) -> bool:
    """Whether enough values lie on both sides of a quantile to resample it."""
    return round(n * min(p, 1 - p), 9) >= TAIL


def quantile_change(
    base: Values,
    candidate: Values,
    p: float,
    name: str,
    widened: tuple[float, float] = (1.0, 1.0),
) -> Change:
    """Change of the p-quantile between sorted values, by the bootstrap.

    Args:
        name: Of the figure; the same name draws the same numbers.
        widened: What `inflation` says of base and candidate.
    """
    before, after = quantile(base, p), quantile(candidate, p)
    if not before or not after or before <= 0 or after <= 0:
        return NONE
    estimate = math.log(after / before)
    if not (has_tail(len(base), p) and has_tail(len(candidate), p)):
        return Change(estimate, None, None)
    draws = _rng(name)
    old, new = (
        _resampled(values, p, factor, draws)
        for values, factor in zip((base, candidate), widened, strict=True)
    )
    ratios = np.log(new / old)
    return Change(estimate, *_ends(ratios))


def _resampled(ordered: Values, p: float, widened: float, draws: np.random.Generator) -> Values:
    """The quantile of RESAMPLES bootstrap samples, exactly distributed, without drawing them.

    The k-th of n uniform draws is Beta(k, n - k + 1) distributed; the resample's quantile is the
    value that lies there. Values that are alike count as fewer.
    """
    n = len(ordered)
    k = rank(n, p) + 1
    return _at(ordered, draws.beta(k / widened, (n - k + 1) / widened, RESAMPLES))


def _at(ordered: Values, share: Values) -> Values:
    picked: Values = ordered[
        np.minimum((share * len(ordered)).astype(np.int64), len(ordered) - 1)
    ]
    return picked


def spread(ordered: Values) -> float | None:
    """Distance between the quartiles; None below MIN_SPREAD values."""
    if len(ordered) < MIN_SPREAD:
        return None
    return float(ordered[rank(len(ordered), 0.75)] - ordered[rank(len(ordered), 0.25)])


def spread_change(base: Values, candidate: Values, name: str) -> Change:
    """Change of the distance between the quartiles of sorted values, by the bootstrap."""
    before, after = spread(base), spread(candidate)
    if not before or not after:
        return NONE
    draws = _rng(name)
    old, new = _resampled_spread(base, draws), _resampled_spread(candidate, draws)
    sound = (old > 0) & (new > 0)
    if sound.mean() < _HIGH:
        return Change(math.log(after / before), None, None)
    return Change(math.log(after / before), *_ends(np.log(new[sound] / old[sound])))


def _resampled_spread(ordered: Values, draws: np.random.Generator) -> Values:
    """Both quartiles of one resample: the upper one lies in what is left above the lower one."""
    n = len(ordered)
    first, last = rank(n, 0.25) + 1, rank(n, 0.75) + 1
    low = draws.beta(first, n - first + 1, RESAMPLES)
    high = low + (1 - low) * draws.beta(last - first, n - last + 1, RESAMPLES)
    return _at(ordered, high) - _at(ordered, low)


def same_spread_p(base: Values, candidate: Values) -> float | None:
    """P-value of the Brown-Forsythe test for equal spread; None below MIN_SPREAD values."""
    from scipy.stats import levene

    if min(len(base), len(candidate)) < MIN_SPREAD:
        return None
    if not (np.ptp(base) or np.ptp(candidate)):
        return None
    return float(levene(base, candidate, center="median").pvalue)


def wilson(failed: int, n: int) -> Interval:
    """Wilson's interval of a share."""
    if not n:
        return Interval(None, None)
    share, z2 = failed / n, _Z * _Z
    centre, root = share + z2 / (2 * n), math.sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    low, high = ((centre + sign * _Z * root) / (1 + z2 / n) for sign in (-1, 1))
    return Interval(max(low, 0.0) if failed else 0.0, min(high, 1.0) if failed < n else 1.0)


def mean_change(base: Values, candidate: Values) -> Change:
    """Change of a mean of positive values, with the normal interval of its logarithm."""
    if len(base) < 2 or len(candidate) < 2 or base.mean() <= 0 or candidate.mean() <= 0:
        return NONE
    estimate = math.log(candidate.mean() / base.mean())
    error = math.sqrt(sum(v.var(ddof=1) / (len(v) * v.mean() ** 2) for v in (base, candidate)))
    return Change(estimate, estimate - _Z * error, estimate + _Z * error)


class Completed(NamedTuple):
    """What one side got done: when (ns), how much each, and the span of the recording."""

    ts_ns: npt.NDArray[np.int64]
    amount: Values
    start_ns: int
    end_ns: int

    @property
    def dur_s(self) -> float:
        """Length of the recording in s."""
        return (self.end_ns - self.start_ns) / 1e9

    def bins(self, count: int) -> Values:
        """Amount in each of `count` equal parts of the recording."""
        slot = (self.ts_ns - self.start_ns) * count // max(self.end_ns - self.start_ns, 1)
        slot = np.clip(slot, 0, count - 1)
        return np.bincount(slot, self.amount, count).astype(np.float64)


def rate(side: Completed) -> float | None:
    """Amount a second; None without a length of time."""
    return float(side.amount.sum()) / side.dur_s if side.dur_s > 0 else None


def rate_change(base: Completed, candidate: Completed, name: str) -> Change:
    """Change of a rate, by resampling parts of the recordings.

    Recordings of about the same length are resampled in pairs: when both replay the same traffic,
    its ups and downs cancel.
    """
    before, after = rate(base), rate(candidate)
    if not before or not after:
        return NONE
    estimate = math.log(after / before)
    count = min(_MAX_BINS, min(len(base.ts_ns), len(candidate.ts_ns)) // _BIN_REQUESTS)
    if count < _MIN_BINS:
        return Change(estimate, None, None)
    draws = _rng(name)
    picked = draws.integers(0, count, (RESAMPLES, count))
    paired = abs(math.log(base.dur_s / candidate.dur_s)) < _SAME_LENGTH
    other = picked if paired else draws.integers(0, count, (RESAMPLES, count))
    old, new = base.bins(count)[picked].sum(axis=1), candidate.bins(count)[other].sum(axis=1)
    sound = (old > 0) & (new > 0)
    if sound.mean() < _HIGH:
        return Change(estimate, None, None)
    ratios = np.log(new[sound] / old[sound]) + math.log(base.dur_s / candidate.dur_s)
    return Change(estimate, *_ends(ratios))


def own_spread(side: Completed) -> float | None:
    """Half the width of the interval of one side's own rate, as a share of it."""
    count = min(_MAX_BINS, len(side.ts_ns) // _BIN_REQUESTS)
    if count < _MIN_BINS:
        return None
    parts = side.bins(count)
    return float(_Z * parts.std(ddof=1) / parts.mean() / math.sqrt(count))


def _rng(name: str) -> np.random.Generator:
    """A generator that depends on the figure alone, so that the same files give the same text."""
    return np.random.default_rng([20260131, zlib.crc32(name.encode())])


def _ends(values: Values) -> tuple[float, float]:
    low, high = np.quantile(values, (_LOW, _HIGH))
    return float(low), float(high)
