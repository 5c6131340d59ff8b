"""Recordings made worse on purpose, to see what the diagnosis rests on.

Each takes a case as it was read, before anything is concluded from it, and takes something away
or puts something false in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random

import polars as pl

from rca.case import Case

_SECOND = 1_000_000_000
_LOST = 0.3
_LEAST_SKEW_S, _MOST_SKEW_S = 5, 60
_N_DECOYS = 6
_DECOYS = (
    ("deploy", "deployment/docs-site", "image: docs-site:3.1", "image: docs-site:3.2"),
    ("deploy", "deployment/chat-frontend", "image: chat-frontend:8.4", "image: chat-frontend:8.5"),
    ("config", "configmap/fluent-bit", "flush: 1", "flush: 5"),
    ("config", "prometheusrule/slo-alerts", "for: 2m", "for: 5m"),
    ("scale", "deployment/invoice-worker", "replicas: 2", "replicas: 3"),
    ("restart", "daemonset/node-exporter", "v1.9.0", "v1.9.1"),
    ("config", "deployment/llm-engine", "terminationGracePeriodSeconds: 30", "terminationGracePeriodSeconds: 60"),
    ("flag", "flag/dark-theme", "off", "on"),
    ("config", "deployment/api-gateway", "access_fields: 12", "access_fields: 14"),
    ("deploy", "job/usage-report", "image: usage-report:1.7", "image: usage-report:1.8"),
)  # fmt: skip


@dataclass(frozen=True)
class Recording:
    """What a perturbation may know of a bundle: its name seeds what is drawn."""

    name: str
    start_ns: int

    @property
    def random(self) -> Random:
        """The same numbers for the same bundle."""
        return Random(self.name)


Perturb = Callable[[Case, Recording], None]


def only(*kinds: str) -> Perturb:
    """Nothing but these kinds of sources."""

    def keep(case: Case, _: Recording) -> None:
        marks = ", ".join("?" for _ in kinds)
        drop_sources(case, f"kind NOT IN ({marks})", kinds)

    return keep


def without(*kinds: str) -> Perturb:
    """All but these kinds of sources."""

    def drop(case: Case, _: Recording) -> None:
        marks = ", ".join("?" for _ in kinds)
        drop_sources(case, f"kind IN ({marks})", kinds)

    return drop


def no_baseline(case: Case, _: Recording) -> None:
    """Nothing from a healthy time; the incident's own lead-in stays."""
    drop_sources(case, "part = 'baseline'")


def lose_scrapes(case: Case, recording: Recording) -> None:
    """30 % of all scrapes are lost, each with everything that it brought."""
    seed = recording.random.randrange(2**31)
    for table in ("sample", "histogram_sample"):
        case.execute(
            f"DELETE FROM {table} WHERE hash(ts_ns // {_SECOND}, ?) % 1000 < ?",
            (seed, int(1000 * _LOST)),
        )


def skew_traces(case: Case, recording: Recording) -> None:
    """The clocks of the incident's traces are 5 to 60 s off, early or late."""
    random = recording.random
    shift_ns = random.choice((-1, 1)) * random.randint(_LEAST_SKEW_S, _MOST_SKEW_S) * _SECOND
    which = "source_id IN (SELECT id FROM source WHERE part = 'incident' AND kind = 'trace')"
    case.execute(f"UPDATE span SET start_ns = start_ns + ? WHERE {which}", (shift_ns,))
    case.execute(
        "UPDATE source SET first_ns = first_ns + ?, last_ns = last_ns + ? "
        "WHERE part = 'incident' AND kind = 'trace'",
        (shift_ns, shift_ns),
    )


def add_decoys(case: Case, recording: Recording) -> None:
    """Six changes that changed nothing, in the two minutes around the onset."""
    random = recording.random
    source_id = case.scalar("SELECT min(id) FROM source WHERE kind = 'change'")
    if source_id is None:
        return
    rows = [
        {
            "id": f"decoy-{number}", "source_id": source_id, "kind": kind, "subject": subject, "before": before,
            "after": after, "ts_ns": recording.start_ns - random.randint(-20, 100) * _SECOND,
            "origin": "changes.jsonl",
        }
        for number, (kind, subject, before, after) in enumerate(random.sample(_DECOYS, _N_DECOYS))
    ]  # fmt: skip
    case.insert("change", pl.DataFrame(rows))


PERTURBATIONS: Mapping[str, Perturb] = {
    "metrics only": only("metrics"),
    "traces only": only("trace"),
    "profiles only": only("torch_profiler", "nsys"),
    "metrics and changes": only("metrics", "change", "config"),
    "no profiles": without("torch_profiler", "nsys"),
    "no changes": without("change", "config"),
    "no baseline": no_baseline,
    "30 % of scrapes lost": lose_scrapes,
    "trace clocks 5-60 s off": skew_traces,
    "six decoy changes": add_decoys,
}
"""By the name that tables of results give them."""


def drop_sources(case: Case, which: str, parameters: tuple[str, ...] = ()) -> None:
    """Take sources out of a case with everything that was read from them.

    Args:
        which: Condition on the columns of `source`; written by this module, never by a bundle.
    """
    ids = f"(SELECT id FROM source WHERE {which})"
    for table in ("sample", "histogram_sample", "exemplar"):
        if case.has(table):
            case.execute(
                f"DELETE FROM {table} WHERE series_id IN (SELECT id FROM series WHERE source_id IN {ids})",
                parameters,
            )
    for (table,) in case.rows(
        "SELECT c.table_name FROM information_schema.columns AS c JOIN information_schema.tables AS t "
        "ON t.table_name = c.table_name WHERE c.column_name = 'source_id' AND t.table_type = 'BASE TABLE' "
        "AND t.table_catalog = current_database() ORDER BY 1"
    ):
        case.execute(f"DELETE FROM {table} WHERE source_id IN {ids}", parameters)
    case.execute(f"DELETE FROM source WHERE {which}", parameters)
