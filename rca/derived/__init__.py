"""Changes that nobody recorded, read from the telemetry itself; `origin` says from which.

A label of a build, image or cache setting that changes, a new generation or number of replicas,
a process that started, a version on spans, an engine that logs other arguments at its next start,
and settings that differ between the baseline's and the incident's configuration. What a recorded
change says already is not said again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import polars as pl

from rca.case import Case
from rca.derived import effects
from rca.derived.effects import ROLLOUT_NS, began
from rca.derived.naming import name_of, plain_value, related, words, workload

SAME_NS = 600 * 10**9
"""A derived change this close to a recorded one of the same content is the same change."""
_START_NS = 60 * 10**9
"""Log lines of one engine start lie within this."""
_IDENTITY = re.compile(
    r"instance|pod(_ip|_uid)?|uid|host(name|_?ip)?|node(_?name)?|container(_id)?|id|image_(id|spec)"
    r"|namespace|job|service|endpoint|prometheus|replica|cluster|engine(_index)?|exported_.*|deployment"
    r"|statefulset|app|name|implementation|goarch|goos|branch|goversion|tags"
)
"""Labels that say whose state it is, or that mean nothing for how it runs."""
_MEASURED = re.compile(r"num_.*blocks|kv_cache_(size|max|memory).*")
_MEASURED_SHARE = 0.05
"""What an engine measures at its start comes out a little different each time."""
_NOT_A_SETTING = re.compile(
    r"(?i)(^|[._])(node_?name|hosts?|host_?ip|uid|resource_?version|generation|timestamp|pid|seed)$|annotations|status"
)
_RESTART = "restart"


@dataclass(frozen=True)
class Seen:
    """A change as telemetry shows it.

    Attributes:
        name: The workload or service without its kind, by which changes are compared.
        settings: What changed: name → (before, after).
    """

    ts_ns: int
    kind: str
    subject: str
    name: str
    settings: tuple[tuple[str, str | None, str | None], ...]
    origin: str
    source_id: int


def derive(case: Case) -> int:
    """Write change rows that the incident's telemetry shows and no record says; returns how many."""
    case.execute("DELETE FROM change WHERE id LIKE 'derived-%'")
    timed = _merged([*_labels(case), *_versions(case), *_steps(case), *_arguments(case)])
    starts = [s for s in timed if s.kind == _RESTART]
    seen = timed + list(_differences(case, starts))
    recorded = _recorded(case)
    kept = [s for s in _distinct(seen) if not any(_same(s, r) for r in recorded)]
    kept.sort(key=lambda s: (s.ts_ns, s.subject, s.origin, s.settings))
    rows = [_row(number, s) for number, s in enumerate(kept, start=1)]
    count = case.insert("change", pl.DataFrame(rows, infer_schema_length=None)) if rows else 0
    effects.date(case)
    return count


def _row(number: int, seen: Seen) -> dict[str, Any]:
    before, after = (
        ", ".join(f"{s[0]}: {s[side]}" for s in seen.settings if s[side] is not None) or None
        for side in (1, 2)
    )
    return {
        "id": f"derived-{number}", "source_id": seen.source_id, "ts_ns": seen.ts_ns, "kind": seen.kind,
        "subject": seen.subject, "before": before, "after": after, "origin": seen.origin,
    }  # fmt: skip


def _labels(case: Case) -> Iterator[Seen]:
    """Label values of info series that appear while others of the same workload end or stay."""
    groups: dict[tuple[str, str], list[tuple[dict[str, str], int, int, int]]] = {}
    for source_id, name, labels, first, last in case.rows(
        "SELECT source_id, name, labels, first_ns, last_ns FROM info_seen WHERE part = 'incident' "
        "ORDER BY name, first_ns, last_ns, CAST(labels AS VARCHAR)"
    ):
        subject = workload(labels)
        groups.setdefault((name, subject), []).append((labels, first, last, source_id))
    for (name, subject), rows in groups.items():
        only = {"image"} if name == "kube_pod_container_info" else None
        keys = sorted({k for r in rows for k in r[0] if not _IDENTITY.fullmatch(k.lower())})
        for key in keys:
            if only and key not in only:
                continue
            spans = [(r[0].get(key), r[1], r[2], r[3]) for r in rows]
            kind = "deploy" if key in ("image", "version", "revision", "tag") else "config"
            for old, new, ts_ns, source_id in _replaced(spans):
                if _MEASURED.fullmatch(key) and _nearly(old, new):
                    continue
                yield Seen(
                    ts_ns, kind, subject, name_of(subject), ((key, old, new),), name, source_id
                )


def _nearly(old: str | None, new: str | None) -> bool:
    try:
        before, after = float(old or "nan"), float(new or "nan")
    except ValueError:
        return False
    return abs(after - before) <= _MEASURED_SHARE * abs(before)


def _versions(case: Case) -> Iterator[Seen]:
    rows = case.rows(
        "SELECT service, version, first_ns, last_ns, source_id FROM version_seen "
        "WHERE part = 'incident' ORDER BY service, first_ns, version"
    )
    for service in sorted({r[0] for r in rows}):
        spans = [(v, first, last, source) for s, v, first, last, source in rows if s == service]
        for old, new, ts_ns, source_id in _replaced(spans):
            yield Seen(
                ts_ns, "deploy", f"service/{service}", service, (("version", old, new),),
                "service.version", source_id,
            )  # fmt: skip


def _replaced(
    spans: Sequence[tuple[str | None, int, int, int]],
) -> Iterator[tuple[str | None, str | None, int, int]]:
    """Values that appear after the first: (value before, value, when, source)."""
    first: dict[str | None, tuple[int, int]] = {}
    last: dict[str | None, int] = {}
    for value, begin, end, source in spans:
        first[value] = min(first.get(value, (begin, source)), (begin, source))
        last[value] = max(last.get(value, end), end)
    ordered = sorted(first, key=lambda v: (first[v], str(v)))
    start = first[ordered[0]][0] if ordered else 0
    for index, value in enumerate(ordered[1:], start=1):
        begin, source = first[value]
        # Values that stood side by side from the start on are replicas that differ, no change.
        if begin > start:
            before = max(ordered[:index], key=lambda v: (min(last[v], begin), str(v)))
            yield before, value, begin, source


def _steps(case: Case) -> Iterator[Seen]:
    """New generations, numbers of replicas, and process starts."""
    for source_id, name, labels, ts_ns, before, after in case.rows(
        "SELECT source_id, name, labels, ts_ns, before, after FROM state_step WHERE part = 'incident' "
        "ORDER BY ts_ns, name, CAST(labels AS VARCHAR)"
    ):
        subject = workload(labels)
        if name == "process_start_time_seconds":
            who = labels.get("pod") or labels.get("instance") or ""
            started = round(after * 1000) * 1_000_000
            # A process that is seen late may have run all along; only its own start time tells.
            if before is None and not began(case, after, source_id):
                continue
            when = started if ts_ns - 3600 * 10**9 < started <= ts_ns else ts_ns
            yield Seen(
                when, _RESTART, subject, name_of(subject), (("restarted", None, who),), name, source_id
            )  # fmt: skip
        elif before is not None:
            scaled = name.endswith("replicas")
            setting = ("replicas" if scaled else "generation", f"{before:g}", f"{after:g}")
            kind = "scale" if scaled else "config"
            yield Seen(ts_ns, kind, subject, name_of(subject), (setting,), name, source_id)


def _arguments(case: Case) -> Iterator[Seen]:
    """Arguments that an engine logs at one start and not, or otherwise, at the next."""
    rows = case.rows(
        "SELECT c.source_id, c.subject, c.key, c.value, c.ts_ns + src.shift_ns FROM config AS c "
        "JOIN source AS src ON src.id = c.source_id WHERE src.part = 'incident' AND src.kind = 'log' "
        "AND c.ts_ns IS NOT NULL ORDER BY c.source_id, c.subject, c.ts_ns, c.key, c.value"
    )
    starts: dict[tuple[int, str], list[tuple[int, int, dict[str, set[str]]]]] = {}
    for source_id, subject, key, value, ts_ns in rows:
        known = starts.setdefault((source_id, subject), [])
        if not known or ts_ns - known[-1][1] > _START_NS:
            known.append((ts_ns, ts_ns, {}))
        begin, _, settings = known[-1]
        settings.setdefault(key, set()).add(plain_value(value))
        known[-1] = (begin, ts_ns, settings)
    for (source_id, subject), known in starts.items():
        for (_, _, old), (begin, _, new) in pairwise(known):
            changed = [
                (key, " or ".join(sorted(old[key])), " or ".join(sorted(new[key])))
                for key in sorted(old.keys() & new.keys())
                if not old[key] & new[key] and not _NOT_A_SETTING.search(key)
            ]
            if changed:
                yield Seen(
                    begin, "config", subject, subject, tuple(changed), "engine_log", source_id
                )


def _differences(case: Case, starts: Sequence[Seen]) -> Iterator[Seen]:
    """Settings whose value in the incident's configuration is not the baseline's."""
    sides: dict[str, dict[tuple[str, str], tuple[str, int | None, int]]] = {}
    for part, subject, key, value, ts_ns, source_id in case.rows(
        "SELECT src.part, c.subject, c.key, c.value, c.ts_ns, c.source_id FROM config AS c "
        "JOIN source AS src ON src.id = c.source_id ORDER BY c.ts_ns NULLS FIRST, c.source_id, c.key, c.value"
    ):
        sides.setdefault(part, {})[subject, key] = plain_value(value), ts_ns, source_id
    before, after = sides.get("baseline", {}), sides.get("incident", {})
    both = {s for s, _ in before} & {s for s, _ in after}
    begin = case.scalar(
        "SELECT min(first_ns) FROM source WHERE part = 'incident' AND kind IN ('metrics', 'trace', 'log')"
    )
    if begin is None:
        return
    for subject, key in sorted(before.keys() | after.keys()):
        old, new = before.get((subject, key)), after.get((subject, key))
        if (
            subject not in both
            or _NOT_A_SETTING.search(key)
            or (old and new and old[0] == new[0])
        ):
            continue
        # A log that begins after the start-up lacks arguments; that is no change.
        if (old is None or new is None) and _is_logged(case, (old or new or ("", None, 0))[2]):
            continue
        known = new[1] if new and new[1] is not None and new[1] >= begin else None
        restarted = next((s.ts_ns for s in starts if related(s.name, name_of(subject))), None)
        kind = {"image": "deploy", "replicas": "scale"}.get(key, "config")
        yield Seen(
            known or restarted or begin, kind, subject, name_of(subject),
            ((key, old[0] if old else None, new[0] if new else None),), "config_diff",
            (new or old or ("", None, 0))[2],
        )  # fmt: skip


def _is_logged(case: Case, source_id: int) -> bool:
    return bool(
        case.scalar("SELECT count(*) FROM source WHERE id = ? AND kind = 'log'", (source_id,))
    )


def _merged(seen: Iterable[Seen]) -> list[Seen]:
    """One change for what several settings or replicas of one workload show at about the same time."""
    found: list[Seen] = []
    latest = 0
    for one in sorted(seen, key=lambda s: (s.origin, s.subject, s.kind, s.ts_ns, s.settings)):
        last = found[-1] if found else None
        same = last and (last.origin, last.subject, last.kind) == (
            one.origin,
            one.subject,
            one.kind,
        )
        # A rollout goes on from replica to replica: each is held against the one before it.
        goes_on = last and (one.kind == _RESTART or set(one.settings) <= set(last.settings))
        since = latest if goes_on else last.ts_ns if last else 0
        if last and same and one.ts_ns - since <= SAME_NS and one.origin != "engine_log":
            found[-1] = replace(last, settings=_joined(last.settings, one.settings))
        else:
            found.append(one)
        latest = one.ts_ns
    return found


def _joined(
    first: tuple[tuple[str, str | None, str | None], ...],
    more: tuple[tuple[str, str | None, str | None], ...],
) -> tuple[tuple[str, str | None, str | None], ...]:
    return first + tuple(s for s in more if s not in first)


def _distinct(seen: Sequence[Seen]) -> list[Seen]:
    """What is only the trace of another derived change (a restart, a generation) is left out."""
    telling = [s for s in seen if not _is_trace(s)]
    kept: list[Seen] = []
    for one in telling:
        if not any(
            _says(one, k.name, _text(k)) and abs(one.ts_ns - k.ts_ns) <= SAME_NS for k in kept
        ):
            kept.append(one)
    for one in sorted(
        (s for s in seen if _is_trace(s)), key=lambda s: (s.kind != _RESTART, s.ts_ns)
    ):
        close = (k for k in kept if abs(one.ts_ns - k.ts_ns) <= SAME_NS)
        if not any(related(one.name, k.name) for k in close):
            kept.append(one)
    return kept


def _is_trace(seen: Seen) -> bool:
    return seen.kind == _RESTART or seen.settings[0][0] == "generation"


@dataclass(frozen=True)
class _Record:
    ts_ns: int
    name: str
    text: str


def _recorded(case: Case) -> list[_Record]:
    return [
        _Record(ts_ns, name_of(subject), f"{kind} {subject} {before or ''} {after or ''}")
        for kind, subject, before, after, ts_ns in case.rows(
            "SELECT c.kind, c.subject, c.before, c.after, c.ts_ns + src.shift_ns FROM change AS c "
            "JOIN source AS src ON src.id = c.source_id WHERE c.id NOT LIKE 'derived-%'"
        )
    ]


def _same(seen: Seen, record: _Record) -> bool:
    """Whether a recorded change says what a derived one shows; an undated difference has no time."""
    if _is_trace(seen):
        follows = -SAME_NS <= seen.ts_ns - record.ts_ns <= ROLLOUT_NS
        return follows and related(seen.name, record.name)
    if seen.origin != "config_diff" and abs(seen.ts_ns - record.ts_ns) > SAME_NS:
        return False
    return _says(seen, record.name, record.text)


def _says(seen: Seen, name: str, text: str) -> bool:
    """Whether a text names one of the settings with its new value, or both of its values."""
    said, is_same = words(text), related(seen.name, name)
    for key, old, new in seen.settings:
        # Traces and deployments call the same thing by different names, but a version is a version.
        if not is_same and key not in ("version", "image"):
            continue
        values = [v for v in (old, new) if v is not None]
        told = [words(v) <= said for v in values]
        both = len(told) == 2 and all(told)
        if both or (told and told[-1] and words(key) <= said):
            return True
    return False


def _text(seen: Seen) -> str:
    return " ".join(f"{k} {old or ''} {new or ''}" for k, old, new in seen.settings)
