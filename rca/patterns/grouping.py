"""Members into groups by their features, with the test whether there is more than one group.

Ward's clustering, 2 to 6 groups by silhouette. Whether there are groups at all is tested as SigClust
does (Liu, Hayes, Nobel and Marron 2008): the silhouette of the best split must lie beyond those of
members drawn from one normal distribution with the same covariance, split in the same way. Every
cloud can be split; only a gap between its halves makes two groups of it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int64]

_MOST_GROUPS = 6
_ONE_GROUP_BELOW = 0.35
"""Silhouette below which groups lie too close to be told apart, whatever the test says."""
_SURE = 0.05
_DRAWS, _TESTED = 39, 160
"""Draws of the test, so that one beyond all of them has p = 0.025, and members of each."""
_ENOUGH = 4
"""Draws at least as divided as the members after which the answer is known (Besag and Clifford 1991)."""
_RESAMPLES = 5
_SEED = 7


class Grouping(NamedTuple):
    """Which member belongs where, and how sure that is.

    Attributes:
        labels: Group of each member, counted from 0, the largest group first.
        silhouette: Of the grouping, -1 to 1; None for a single group.
        stability: Adjusted Rand index against groupings of resampled members; None for a single group.
        outliers: Members that HDBSCAN finds in no dense group.
        p_one: Probability of a split this clear, or clearer, in one normal cloud; None when the members
            cannot be split at all.
    """

    labels: Labels
    silhouette: float | None
    stability: float | None
    outliers: int
    p_one: float | None


class Sizes(NamedTuple):
    """How small groups may be.

    Attributes:
        mean: Members that there are for each group, at least.
        least: Members of the smallest group, at least; a fiftieth of all in any case.
    """

    mean: int = 8
    least: int = 3


_USUAL = Sizes()


def group(features: Matrix, sizes: Sizes = _USUAL) -> Grouping:
    """Groups of the members; the same features always give the same groups.

    Args:
        features: One row a member (members, features); distances between rows are what counts.
        sizes: How small groups may be.
    """
    best = _best_split(features, sizes)
    p_one = None if best is None else _p_one(features, sizes)
    outliers = _outliers(features)
    if best is None or p_one is None or p_one > _SURE or best[0] < _ONE_GROUP_BELOW:
        return Grouping(np.zeros(len(features), np.int64), None, None, outliers, p_one)
    silhouette, labels = best
    return Grouping(labels, silhouette, _stability(features, labels), outliers, p_one)


def _best_split(features: Matrix, sizes: Sizes) -> tuple[float, Labels] | None:
    """The split of the highest silhouette; None when no split has groups that are large enough."""
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import pdist, squareform

    n = len(features)
    most = min(_MOST_GROUPS, n // sizes.mean)
    if most < 2:
        return None
    pairs = pdist(features)
    tree, square = linkage(pairs, "ward"), squareform(pairs)
    best: tuple[float, Labels] | None = None
    for k in range(2, most + 1):
        labels = fcluster(tree, k, "maxclust") - 1
        counts = np.bincount(labels)
        if len(counts) < 2 or counts.min() < max(sizes.least, n // 50):
            continue
        value = _silhouette(square, labels, counts)
        if best is None or value > best[0]:
            best = (value, _largest_first(labels, counts))
    return best


def _silhouette(distances: Matrix, labels: Labels, counts: Labels) -> float:
    """Mean over members of (b - a) / max(a, b): how much nearer its own group is than the next one."""
    at = np.arange(len(labels))
    sums = distances @ np.eye(len(counts))[labels]  # (members, groups)
    own = sums[at, labels] / np.maximum(counts[labels] - 1, 1)
    means = sums / counts
    means[at, labels] = np.inf
    other = means.min(axis=1)
    largest = np.maximum(own, other)
    gain = np.divide(other - own, largest, out=np.zeros_like(own), where=largest > 0)
    return float(np.where(counts[labels] > 1, gain, 0.0).mean())


def _largest_first(labels: Labels, counts: Labels) -> Labels:
    """Labels counted from the largest group on; of equal ones the one that comes first."""
    first = [int(np.argmax(labels == label)) for label in range(len(counts))]
    order = sorted(range(len(counts)), key=lambda label: (-counts[label], first[label]))
    return np.argsort(order)[labels].astype(np.int64)


def _p_one(features: Matrix, sizes: Sizes) -> float:
    """How often one normal cloud of the members' covariance splits as clearly as they do.

    Only the variances along the main axes count: neither the split nor its silhouette knows of
    directions.
    """
    random = np.random.default_rng(_SEED)
    n = min(len(features), _TESTED)
    tested = features[random.permutation(len(features))[:n]]
    seen = _best_split(tested, sizes)
    if seen is None:
        return 1.0
    covariance = np.atleast_2d(np.cov(tested.T))
    spread = np.sqrt(np.maximum(np.linalg.eigvalsh(covariance), 0.0))
    spread = spread[spread > spread.max() * 1e-6]
    as_clear = 0
    for draw in range(1, _DRAWS + 1):
        split = _best_split(random.standard_normal((n, len(spread))) * spread, sizes)
        as_clear += split is not None and split[0] >= seen[0]
        if as_clear == _ENOUGH:
            return as_clear / draw
    return (as_clear + 1) / (_DRAWS + 1)


def _stability(features: Matrix, labels: Labels) -> float:
    """Mean agreement with groupings of four fifths of the members, into as many groups."""
    from scipy.cluster.hierarchy import fcluster, ward
    from sklearn.metrics import adjusted_rand_score

    k, n = int(labels.max()) + 1, len(features)
    random = np.random.default_rng(_SEED)
    picks = [random.choice(n, n * 4 // 5, replace=False) for _ in range(_RESAMPLES)]
    again = [fcluster(ward(features[pick]), k, "maxclust") for pick in picks]
    agreement = [
        adjusted_rand_score(labels[pick], new) for pick, new in zip(picks, again, strict=True)
    ]
    return float(np.mean(agreement))


def _outliers(features: Matrix) -> int:
    from sklearn.cluster import HDBSCAN

    size = max(5, len(features) // 6)
    if len(features) < size:
        return 0
    labels = HDBSCAN(min_cluster_size=size, min_samples=5, copy=True).fit_predict(features)
    return int((labels < 0).sum()) if (labels >= 0).any() else 0
