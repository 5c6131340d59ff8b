"""Alerts, log lines, broken metrics and slow operations that tell the same story.

Each event is a short text with a time and a service. Texts become weights of words (TF-IDF) in a few
directions (latent semantic analysis), so that events share one also through words of third ones;
beside them stand the time of onset and the service.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from rca.case import Case, sql_text
from rca.patterns.grouping import Grouping, Matrix, Sizes, group
from rca.patterns.record import row
from rca.plain import duration

_FEWEST = 6
_SIZES = Sizes(mean=4, least=3)
_TOPICS = 3
"""Directions that texts are told apart in: with more of them each short text is alone."""
_TIME, _SERVICE = 1.0, 0.5
"""Weights beside the text's 1: a time is in lengths of the window."""
_NAMED, _KEPT = 3, 12
"""Words in the name of a group, and in its centre."""
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_A-Za-z]+")
_STOP = {
    "a", "an", "and", "are", "as", "at", "be", "by", "for", "from", "had", "has", "have", "in", "into", "is", "it", "its",
    "not", "of", "on", "or", "per", "than", "that", "the", "their", "time", "to", "was", "were", "while", "with", "each", "every",
}  # fmt: skip
_READ = 400
"""Characters of an event that are read."""


def groups(case: Case) -> list[dict[str, Any]]:
    """Rows of `pattern` for the events of the first incident window, that which began first first."""
    table = case.sql(sql_text("patterns", "events"))
    if len(table) < _FEWEST:
        return []
    texts, words = _weights([tokens(text[:_READ]) for text in table["words"]])
    if not words:
        return []
    grouping = group(_features(texts, table), _SIZES)
    numbers = range(int(grouping.labels.max()) + 1)
    found = [_row(table, texts, words, grouping, n) for n in numbers]
    return [told for _, told in sorted(found, key=lambda f: f[0])]


def tokens(text: str) -> list[str]:
    """The words of a text, names in camelCase and snake_case taken apart, in small letters, singular."""
    found = [word.lower() for word in _WORD.findall(text)]
    return [_singular(word) for word in found if len(word) > 1 and word not in _STOP]


def _singular(word: str) -> str:
    """Without the s of a plural: `requests` and `request` are one word."""
    is_plural = len(word) > 3 and word.endswith("s") and word[-2] not in "aious"
    return word[:-1] if is_plural else word


def _weights(texts: Sequence[list[str]]) -> tuple[Matrix, list[str]]:
    """TF-IDF weights (events, words) of length 1 a row, and the words."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    if not any(texts):
        return np.empty((len(texts), 0)), []
    vectorizer = TfidfVectorizer(analyzer=list, sublinear_tf=True)
    weights = vectorizer.fit_transform(texts).toarray()
    return weights, vectorizer.get_feature_names_out().tolist()


def _features(texts: Matrix, table: pl.DataFrame) -> Matrix:
    """Text, time and service side by side (events, features)."""
    left, sizes, _ = np.linalg.svd(texts, full_matrices=False)
    topics = (left * sizes)[:, :_TOPICS]
    services = table["service"].rank("dense").to_numpy().astype(np.int64) - 1
    of = np.eye(int(services.max()) + 1)[services] / np.sqrt(2.0)
    return np.column_stack([topics, _TIME * table["place"].to_numpy(), _SERVICE * of])


def _row(
    table: pl.DataFrame, texts: Matrix, words: Sequence[str], grouping: Grouping, number: int
) -> tuple[int, dict[str, Any]]:
    """Onset of a group's first event, ns, and the group.

    It is named by its weightiest words, where there are others those that set it apart from all.
    """
    inside = grouping.labels == number
    weight = texts[inside].mean(axis=0)
    apart = weight if inside.all() else weight - texts.mean(axis=0)
    order = [int(i) for i in np.argsort(-apart, kind="stable")[:_KEPT] if weight[i] > 0]
    events = table.filter(pl.Series(inside))
    onset, start = int(events["onset_ns"][0]), int(events["start_ns"][0])
    told = ", ".join(words[i] for i in order[:_NAMED]) or "no words"
    centre = {words[i]: float(weight[i]) for i in order}
    named = f"{told}; first {_when(onset - start)}"
    return onset, row("alert", grouping, named, centre, events["id"].to_list(), len(events))


def _when(since_start_ns: int) -> str:
    if abs(since_start_ns) < 1_000_000_000:
        return "at the start"
    side = "before" if since_start_ns < 0 else "after"
    return f"{duration(abs(since_start_ns))} {side} the start"
