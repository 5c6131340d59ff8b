"""Which slices of time, kernels and events are of one kind; ways of being slow have a chart of their own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import groupby

from rca.case import Case, sql_files
from rca.plain import moment, number, printable, role_words
from rca.postmortem.section import Section

_MOST = 18
"""Rows: six groups of each kind."""
_NAMED = 4
"""Kernels and events of a group that are named."""
_READ = (
    "What is alike in the recordings, grouped; groups are no causes. There is more than one group only where "
    "a single cloud would hardly ever look as divided (column p_one)."
)


def tell(case: Case) -> list[Section]:
    """One table of all kinds; none where there is nothing to tell apart."""
    rows = [*_phases(case), *_kernels(case), *_events(case)]
    if not rows:
        return []
    head = ("Of", "Group", "Members", "Which")
    return [Section("Patterns", [_READ], head, rows[:_MOST], "SELECT * FROM pattern")]


def _query(name: str) -> str:
    return dict(sql_files("report"))[name]


def _phases(case: Case) -> Iterator[tuple[str, ...]]:
    """Phases in the order in which they begin; one alone is none."""
    found = case.rows(_query("51_phases.sql"))
    for name, size, stretches, start_ns, end_ns in found if len(found) > 1 else []:
        more = f", and {stretches - 1} shorter" if stretches > 1 else ""
        when = f"{moment(start_ns)} – {moment(end_ns, date=False)} UTC{more}"
        yield "slices of time", printable(name, 120), number(size), when


def _kernels(case: Case) -> Iterator[tuple[str, ...]]:
    found = case.rows(
        "SELECT name, size, members FROM pattern WHERE kind = 'kernel' ORDER BY id"
    )
    for name, size, members in found if len(found) > 1 else []:
        names = [printable(kernel, 60) for kernel in json.loads(members)]
        yield "kernels", name, number(size), _listed(names, size)


def _events(case: Case) -> Iterator[tuple[str, ...]]:
    """Events of a group in the order of their onset."""
    found = case.rows(_query("52_events.sql"), [_NAMED])
    for (_, name, size), rows in groupby(found, key=lambda row: row[:3]):
        told = [_event(*row[3:]) for row in rows]
        yield "events", printable(name, 120), number(size), _listed(told, size)


def _event(member: str, template: str | None, subject: str | None, service: str | None) -> str:
    if template is not None:
        return f"log line “{printable(template, 60)}”"
    if subject is not None:
        of = f" of {printable(service, 40)}" if service else ""
        return f"{member} {role_words(subject)}{of}"
    kind, _, name = member.partition(":")
    return f"{'operation' if kind == 'span' else kind} {printable(name, 60)}"


def _listed(names: list[str], size: int) -> str:
    more = size - len(names[:_NAMED])
    return ", ".join(names[:_NAMED]) + (f" and {number(more)} more" if more > 0 else "")
