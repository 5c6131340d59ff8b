"""Groups as rows of `pattern`, and features on one scale."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rca.patterns.grouping import Grouping, Matrix

_STRONGEST = 2

Words = Callable[[str, bool], str]
"""How a feature is called where it lies above (True) or below the middle."""


def squeezed(shift: Matrix, spread: Matrix | float) -> Matrix:
    """Shifts in units of the spread, from -1 to 1: four spreads are 0.76, and no outlier counts for more than 1."""
    return np.tanh(shift / spread / 4.0)


def up_or_down(feature: str, is_up: bool) -> str:
    """A feature with the direction that it went."""
    return f"{feature.replace('_', ' ')} {'up' if is_up else 'down'}"


def name(
    features: Sequence[str], centre: Matrix, words: Words, otherwise: str, telling: float
) -> str:
    """The two strongest components beyond `telling`; `otherwise` where there is none."""
    strongest = np.argsort(-np.abs(centre), kind="stable")[:_STRONGEST]
    told = [words(features[i], centre[i] > 0) for i in strongest if abs(centre[i]) > telling]
    return ", ".join(told) or otherwise


def row(
    kind: str,
    grouping: Grouping,
    named: str,
    centre: dict[str, float],
    members: Sequence[str | int],
    size: int,
) -> dict[str, Any]:
    """One group as a row of `pattern`, all but its id."""
    return {
        "kind": kind,
        "name": named,
        "size": size,
        "outliers": grouping.outliers,
        "silhouette": grouping.silhouette,
        "stability": grouping.stability,
        "p_one": grouping.p_one,
        "centre": json.dumps({key: round(float(value), 4) for key, value in centre.items()}),
        "members": json.dumps(members),
    }


def rows(
    kind: str,
    grouping: Grouping,
    features: Matrix,
    names: Sequence[str],
    members: Sequence[str | int],
    most_members: int,
    words: Words = up_or_down,
    otherwise: str = "as healthy",
    telling: float = 0.2,
) -> list[dict[str, Any]]:
    """All groups, the largest first, named by their strongest components.

    Args:
        features: From -1 to 1, one row a member (members, features).
        names: Names of the features.
        members: Ids, of which each group keeps the first `most_members`.
        otherwise: The name of a group without a component beyond `telling`.
    """
    found = []
    for label in range(int(grouping.labels.max()) + 1):
        inside = np.flatnonzero(grouping.labels == label)
        centre = features[inside].mean(axis=0)
        kept = [members[i] for i in inside[:most_members]]
        told = name(names, centre, words, otherwise, telling)
        of = dict(zip(names, centre.tolist(), strict=True))
        found.append(row(kind, grouping, told, of, kept, len(inside)))
    return found
