"""Fixes of kind `config`: which setting, which value, and the patch that sets it."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from rca.case import Case
from rca.catalogue import Fix
from rca.fixes.edit import SAFE_VALUE, Row, edited, same
from rca.fixes.facts import Facts, workload
from rca.fixes.proposal import Proposal, script
from rca.patch import diff, normalise, safe_path, settings_in
from rca.plain import printable

_ENGINES = (("vllm", "vllm"), ("sglang", "sglang"), ("tgi", "tgi"), ("triton", "nv_"))
_STEP = " No recording tells the right value: it is a first step, to be measured."


class Wanted(NamedTuple):
    """A setting, what it is and what it is to be; None where it is absent or to be taken out."""

    subject: str
    key: str
    now: str | None
    value: str | None
    why: str
    proven: bool


def propose(case: Case, plain: Proposal, fix: Fix, facts: Facts, *, restores: bool) -> Proposal:
    """The proposal with the value to set: as a patch, a command, or the exact flag in words."""
    wanted = next(_candidates(case, fix, facts, restores=restores), None)
    if wanted is None:
        flag = _written(case, fix.setting or "")
        told = f" The setting is {flag}; no recording tells its value." if fix.setting else ""
        return replace(plain, action=f"{fix.action}{told}")
    action = f"{fix.action} {_said(case, wanted)}"
    for path, text, form in case.rows(
        "SELECT f.path, f.text, s.format FROM config_file AS f JOIN source AS s ON s.id = f.source_id "
        "WHERE s.part = 'incident' ORDER BY f.path"
    ):
        changed = _edited(text, form, path, wanted) if safe_path(path) else None
        if changed:
            return replace(
                plain, target=path, action=action, content=diff(path, text, changed),
                undo_content=diff(path, changed, text), form="patch",
            )  # fmt: skip
    return _environment(case, replace(plain, target=wanted.key, action=action), wanted, facts)


def _edited(text: str, form: str, path: str, wanted: Wanted) -> str | None:
    for subject in dict.fromkeys((wanted.subject, "")):
        place = Row(subject, normalise(wanted.key), wanted.now)
        found = edited(text, form, path, place, wanted.value)
        if found is not None and found != text:
            return found
    return None


def _said(case: Case, wanted: Wanted) -> str:
    flag = _written(case, wanted.key)
    name = printable(flag if flag.startswith("--") or flag != wanted.key else wanted.key, 80)
    if wanted.value is None:
        return f"Take {name} out ({wanted.why})."
    was = f", now {printable(wanted.now, 60)}" if wanted.now is not None else ""
    sign = "=" if name.startswith("--") else " to "
    told = f"Set {name}{sign}{printable(wanted.value, 60)} ({wanted.why}{was})."
    return told + ("" if wanted.proven else _STEP)


def _environment(case: Case, plain: Proposal, wanted: Wanted, facts: Facts) -> Proposal:
    """A command that sets an environment variable, where the setting is one of a known workload."""
    subject = wanted.subject or (facts.change.subject if facts.change else "")
    of = workload(case, subject)
    is_variable = wanted.key.isupper() and wanted.key.replace("_", "").isalnum()
    if of is None or not is_variable:
        return plain
    sides = []
    for value in (wanted.value, wanted.now):
        if value is not None and not SAFE_VALUE.fullmatch(value):
            return plain
        setting = f"{wanted.key}={value}" if value is not None else f"{wanted.key}-"
        sides.append(
            script([f"{of.path}: {wanted.key}"], f"{of.kubectl} set env {of.path} {setting}")
        )
    return replace(plain, content=sides[0], undo_content=sides[1], form="script")


def _candidates(case: Case, fix: Fix, facts: Facts, *, restores: bool) -> Iterator[Wanted]:
    """Values to set, the surest first: what was before the change, what the healthy side has, a step."""
    if facts.change:
        before = {s.key: s for s in settings_in(facts.change.before)}
        after = {s.key: s for s in settings_in(facts.change.after)}
        for key in {**before, **after}:
            old, new = before.get(key), after.get(key)
            changed = not same(old.value if old else None, new.value if new else None)
            if changed and _speaks(fix, facts, key, restores):
                known = new or old
                yield Wanted(
                    facts.change.subject, known.written if known else key,
                    new.value if new else None, old.value if old else None,
                    f"as before {printable(facts.change.id, 60)}", True,
                )  # fmt: skip
    for subject, key, healthy, now in case.rows(_DIFFERENCES):
        if not same(healthy, now) and _speaks(fix, facts, key, restores):
            yield Wanted(subject, key, now, healthy, "as the healthy side has it", True)
    yield from _steps(case, fix)


_DIFFERENCES = """
SELECT coalesce(i.subject, b.subject), coalesce(i.key, b.key), b.value, i.value
FROM (
    SELECT c.subject, c.key, c.value FROM config AS c JOIN source AS s ON s.id = c.source_id
    WHERE s.part = 'baseline'
) AS b
FULL JOIN (
    SELECT c.subject, c.key, c.value FROM config AS c JOIN source AS s ON s.id = c.source_id
    WHERE s.part = 'incident'
) AS i ON i.subject = b.subject AND i.key = b.key
-- A file that only one side has says nothing of what was before.
WHERE coalesce(i.subject, b.subject) IN (
        SELECT subject FROM config JOIN source AS s ON s.id = source_id WHERE s.part = 'baseline')
    AND coalesce(i.subject, b.subject) IN (
        SELECT subject FROM config JOIN source AS s ON s.id = source_id WHERE s.part = 'incident')
ORDER BY 2, 1
"""


def _steps(case: Case, fix: Fix) -> Iterator[Wanted]:
    """The catalogue's value, or its factor of the value that is set now."""
    if fix.setting is None or (fix.value is None and fix.factor is None):
        return
    names = _names(fix.setting)
    set_now = case.rows(
        "SELECT c.subject, c.key, c.value FROM config AS c JOIN source AS s ON s.id = c.source_id "
        "WHERE s.part = 'incident' ORDER BY s.kind <> 'config', c.subject, c.key"
    )
    for subject, key, now in set_now:
        if normalise(key) in names:
            value = _value(fix, now, names[normalise(key)])
            if value is not None and not same(value, now):
                yield Wanted(
                    subject, key, now, value, fix.direction or "as the catalogue says", False
                )
    if fix.value is not None and not any(normalise(k) in names for _, k, _ in set_now):
        value = _value(fix, None, names[normalise(_written(case, fix.setting))])
        subject = case.scalar(
            "SELECT c.subject FROM config AS c JOIN source AS s ON s.id = c.source_id "
            "WHERE s.part = 'incident' AND s.kind = 'config' GROUP BY 1 ORDER BY count(*) DESC, 1 LIMIT 1"
        )
        yield Wanted(subject or "", fix.setting, None, value, fix.direction or "", False)


def _value(fix: Fix, now: str | None, times: float) -> str | None:
    if fix.value is not None:
        number = _number(fix.value)
        return fix.value if number is None else _shown(number * times)
    number = _number(now or "")
    if number is None or fix.factor is None:
        return None
    scaled = number * fix.factor
    return _shown(max(round(scaled), 1) if number.is_integer() else scaled)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _shown(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else f"{value:.4g}"


def _speaks(fix: Fix, facts: Facts, key: str, restores: bool) -> bool:
    named = fix.setting is not None and normalise(key) in _names(fix.setting)
    return named or (restores and bool(facts.cause.change.words.search(key)))


@cache
def _spellings() -> dict[str, dict[str, Any]]:
    return tomllib.loads(
        files("rca").joinpath("fixes", "spellings.toml").read_text(encoding="utf-8")
    )


def _names(setting: str) -> dict[str, float]:
    """What engines call a setting, normalised, each with its factor to the engine's unit."""
    row = _spellings().get(setting, {})
    times = row.get("times", {})
    named = {
        normalise(v): float(times.get(engine, 1))
        for engine, v in row.items()
        if engine != "times"
    }
    return {normalise(setting): 1.0, **named}


def _written(case: Case, setting: str) -> str:
    """The setting as the engine of this case spells it; itself where that is not known."""
    row = _spellings().get(setting, {})
    for engine, prefix in _ENGINES:
        if engine in row and case.scalar(
            "SELECT count(*) FROM series WHERE starts_with(name, ?)", (prefix,)
        ):
            return str(row[engine])
    return setting
