"""The known root causes: rca/causes/*.toml and those that a case was given, loaded and checked."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import polars as pl

from rca.case import Case
from rca.errors import CauseError
from rca.signals import meanings

CLASSES = ("infra", "config", "dependency", "code-regression", "traffic-spike")
FIX_KINDS = ("rollback", "config", "scale", "drain", "circuit_break", "code", "investigate")
PHASES = ("mitigate", "repair", "prevent")
REPRODUCIBLE = ("cpu", "counts", "model", "no")
_ID = re.compile(r"[a-z0-9_]{1,80}")
_MOST_WEIGHT = 100
CONCERNS = ("engine", "traffic", "dependency", "infra", "other", "any")


@dataclass(frozen=True)
class Fix:
    """A fix as the catalogue knows it; `setting` and `direction` are None where none is to be set.

    Attributes:
        value: What to set where no recording tells what it was before.
        factor: The same as a factor of what is set now.
        command: 'restart' or 'cache_ttl' for a fix that is no setting.
        approver: Who should agree, where it is not the usual person of the kind.
        revert: When to take it back, beside the symptom.
    """

    kind: str
    phase: str
    action: str
    risk: str
    reversible: bool
    time_to_effect: str
    setting: str | None = None
    direction: str | None = None
    value: str | None = None
    factor: float | None = None
    command: str | None = None
    approver: str | None = None
    revert: str | None = None


@dataclass(frozen=True)
class Lookalike:
    """A cause that looks alike, and the role that tells them apart."""

    cause: str
    decided_by: str
    because: str


@dataclass(frozen=True)
class ChangeMark:
    """Changes that bring the cause about.

    Attributes:
        required: Whether it cannot come about without one.
        build: Whether any new build of the engine may hold it.
        moves: Roles that such a change moves by itself, where its settings are known to be unsafe.
    """

    kinds: tuple[str, ...]
    words: re.Pattern[str]
    concerns: str
    required: bool = False
    build: bool = False
    moves: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Cause:
    """One root cause.

    Attributes:
        expected: Role → (sign, weight); sign 1 up, -1 down, 0 unmoved.
        neutral: Roles that may move either way.
        requires: At least one of these must have moved as expected.
        either: Ways in which it may show; where one did, the others may have stayed.
        generic: Whether it is what remains when none fits that has a mark of its own.
    """

    id: str
    cls: str
    title: str
    definition: str
    aliases: tuple[str, ...]
    reproducible: str
    references: tuple[str, ...]
    expected: Mapping[str, tuple[int, float]]
    neutral: frozenset[str]
    requires: frozenset[str]
    either: frozenset[str]
    generic: bool
    change: ChangeMark
    lookalikes: tuple[Lookalike, ...]
    fixes: tuple[Fix, ...]


def load(extra: Path | None = None) -> dict[str, Cause]:
    """All causes by id; those in the folder `extra` are added, or replace one of the same id.

    A cause that comes with `rca` must name where it was seen; one of your own need not.

    Raises:
        CauseError: A file does not hold together; names the file and the place in it.
    """
    return _known(_folder(extra))


def keep(case: Case, folder: Path | None) -> None:
    """Put the causes of a folder into the case, in place of those that it was given before.

    Whoever asks the case later gets them by `of`, on another machine too.

    Raises:
        CauseError: A file does not hold together; the case keeps what it had.
    """
    found = _folder(folder)
    _known(found)
    case.clear(["cause_file"])
    if found:
        case.insert("cause_file", pl.DataFrame(found, schema=["name", "content"], orient="row"))


def of(case: Case) -> dict[str, Cause]:
    """All causes by id that this case is judged by: those of `rca`, and those it was given."""
    return _known(case.rows("SELECT name, content FROM cause_file ORDER BY name"))


def _folder(extra: Path | None) -> list[tuple[str, str]]:
    if extra is None:
        return []
    paths = sorted(extra.glob("*.toml"))
    if not paths:
        raise CauseError("no .toml files in it", path=str(extra))
    return [(str(p), _text(p)) for p in paths]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise CauseError("is no UTF-8 text", path=str(path)) from error


def _known(further: Iterable[tuple[str, str]]) -> dict[str, Cause]:
    for name, text in _shipped():
        if not _read(name, text).references:
            raise CauseError("names no reference", path=name, place="references")
    causes = {c.id: c for c in (_read(*named) for named in [*_shipped(), *further])}
    for cause in causes.values():
        for other in cause.lookalikes:
            if other.cause not in causes:
                raise CauseError(
                    f"unknown cause {other.cause!r}", path=cause.id, place="lookalike"
                )
    return dict(sorted(causes.items()))


def describe(causes: dict[str, Cause], key: str) -> dict[str, Any]:
    """One cause as plain values.

    Raises:
        CauseError: No cause has this id or alias; names the nearest.
    """
    cause = causes.get(key) or next((c for c in causes.values() if key in c.aliases), None)
    if cause is None:
        near = get_close_matches(key, causes, n=1)
        hint = f"did you mean {near[0]}?" if near else "rca causes lists them"
        raise CauseError(f"no cause is called {key!r}", hint=hint)
    sides = {"up": 1, "down": -1, "flat": 0}
    return {
        "id": cause.id, "class": cause.cls, "title": cause.title, "definition": cause.definition,
        "aliases": list(cause.aliases), "reproducible": cause.reproducible,
        "signature": {
            name: [r for r, (sign, _) in cause.expected.items() if sign == value]
            for name, value in sides.items()
        },
        "lookalikes": [asdict(x) for x in cause.lookalikes],
        "fixes": [asdict(x) for x in cause.fixes],
        "references": list(cause.references),
    }  # fmt: skip


@cache
def _shipped() -> list[tuple[str, str]]:
    folder = files("rca").joinpath("causes")
    names = sorted(f.name for f in folder.iterdir() if f.name.endswith(".toml"))
    return [(name, folder.joinpath(name).read_text(encoding="utf-8")) for name in names]


@cache
def _read(name: str, text: str) -> Cause:
    try:
        row = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise CauseError(f"is not valid TOML: {error}", path=name) from error
    try:
        cause = _cause(row)
    except KeyError as error:
        raise CauseError(f"{error.args[0]} is missing", path=name) from error
    except (TypeError, ValueError, re.error) as error:
        raise CauseError(str(error), path=name) from error
    _check_values(cause, name)
    _check(cause, name)
    return cause


def _cause(row: dict[str, Any]) -> Cause:
    signature = row["signature"]
    expected = {
        role: (sign, float(weight))
        for side, sign in (("up", 1), ("down", -1), ("flat", 0))
        for role, weight in signature.get(side, {}).items()
    }
    change = row.get("change", {})
    return Cause(
        id=row["id"],
        cls=row["class"],
        title=row["title"],
        definition=row["definition"],
        aliases=tuple(row.get("aliases", ())),
        reproducible=row.get("reproducible", "no"),
        references=tuple(row.get("references", ())),
        expected=expected,
        neutral=frozenset(signature.get("neutral", ())),
        requires=frozenset(signature["requires"]),
        either=frozenset(signature.get("either", ())),
        generic=bool(signature.get("generic", False)),
        change=ChangeMark(
            tuple(change.get("kinds", ())),
            re.compile(change.get("words") or r"(?!)", re.IGNORECASE),
            change.get("concerns", "any"),
            bool(change.get("required", False)),
            bool(change.get("build", row["class"] == "code-regression")),
            frozenset(change.get("moves", ())),
        ),
        lookalikes=tuple(Lookalike(**r) for r in row.get("lookalike", ())),
        fixes=tuple(Fix(**r) for r in row["fix"]),
    )


def _check_values(cause: Cause, name: str) -> None:
    for place in ("id", "title", "definition"):
        if not isinstance(getattr(cause, place), str):
            raise CauseError("is no text", path=name, place=place)
    if not _ID.fullmatch(cause.id):
        raise CauseError(
            f"{cause.id[:40]!r} is no id", path=name, place="id",
            hint="write small letters, digits and '_', at most 80",
        )  # fmt: skip
    if not all(isinstance(f.action, str) and isinstance(f.risk, str) for f in cause.fixes):
        raise CauseError("action or risk is no text", path=name, place="fix")
    for role, (_, weight) in cause.expected.items():
        if not 0 < weight <= _MOST_WEIGHT:
            raise CauseError(
                f"{weight} is no weight", path=name, place=f"signature: {role}",
                hint=f"write a number above 0, at most {_MOST_WEIGHT}",
            )  # fmt: skip


def _check(cause: Cause, name: str) -> None:
    def must(value: str, allowed: Iterable[str], place: str) -> None:
        if value not in allowed:
            raise CauseError(
                f"{value!r} is none of {', '.join(allowed)}", path=name, place=place
            )

    must(cause.cls, CLASSES, "class")
    must(cause.reproducible, REPRODUCIBLE, "reproducible")
    must(cause.change.concerns, CONCERNS, "change.concerns")
    for fix in cause.fixes:
        must(fix.kind, FIX_KINDS, "fix.kind")
        must(fix.phase, PHASES, "fix.phase")
        must(fix.command or "restart", ("restart", "cache_ttl"), "fix.command")
    known = set(meanings())
    for role in {*cause.expected, *cause.neutral, *cause.requires, *cause.either}:
        if role not in known:
            raise CauseError(
                f"unknown role {role!r}",
                path=name,
                place="signature",
                hint="rca/roles.toml lists them",
            )
    moving = {r for r, (sign, _) in cause.expected.items() if sign}
    if cause.either - moving:
        raise CauseError("either names a role that neither rises nor falls", path=name)
    if not cause.requires & moving:
        raise CauseError("requires names no role of signature.up or signature.down", path=name)
