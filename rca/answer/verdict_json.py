"""verdict.json: the answer for programs. The shape is fixed by `schema_version`."""

from __future__ import annotations

from os.path import commonpath
from pathlib import PurePath
from typing import Any

from rca.answer import Answer, Window, finite, read, wording
from rca.case import Case
from rca.findings import records

SCHEMA_VERSION = 1


def verdict(case: Case) -> dict[str, Any]:
    """The answer of a case as verdict.json has it: equal cases give equal answers.

    Wall times and absolute paths are left out for that reason; the case has them.
    """
    answer = read(case)
    document = {
        "schema_version": SCHEMA_VERSION,
        "incident": {
            key: getattr(answer.window, key)
            for key in ("start_ns", "end_ns", "detected_by", "slo")
        },
        "windows": [_window(w, explained=i == 0) for i, w in enumerate(_windows(answer))],
        "verdict": _verdict(answer),
        "hypotheses": [_hypothesis(answer, i) for i in range(len(answer.hypotheses))],
        "suspects": [
            {k: v for k, v in vars(s).items() if k != "rank"} for s in answer.suspects
        ],
        "attribution": [
            {"part": p.part, "delta_ns": round(p.delta_ns), "share": p.share}
            for p in answer.attribution
        ],
        "fixes": [_fix(answer, i) for i in range(len(answer.fixes))],
        "trial": _trial(answer),
        "guard_rails": [vars(g) for g in answer.guard_rules],
        "gaps": [vars(g) for g in answer.gaps],
        **records.document(answer.findings),
        "provenance": {
            **answer.provenance,
            "judges": [_juror(answer, i) for i in range(len(answer.jurors))],
            "sources": _sources(case),
        },
    }
    cleaned: dict[str, Any] = finite(document)
    return cleaned


def _windows(answer: Answer) -> list[Window]:
    return [w for w in (answer.window, *answer.other_windows) if w.dur_ns]


def _window(window: Window, *, explained: bool) -> dict[str, Any]:
    """One window that was found; of several, the first is the one that all else speaks of."""
    keys = ("start_ns", "end_ns", "margin_ns", "detected_by", "score")
    command = None if explained else wording.look_at(window)
    return {
        **{key: getattr(window, key) for key in keys},
        "explained": explained,
        "command": command,
    }


def _verdict(answer: Answer) -> dict[str, Any]:
    said, named = answer.verdict, answer.verdict.status == "diagnosed"
    return {
        "status": said.status,
        "cause": said.cause if named else None,
        "class": said.class_ if named else None,
        "confidence": said.confidence,
        "contributing": answer.contributing,
        "reason": said.reason,
        "judge": said.judge,
    }


def _juror(answer: Answer, index: int) -> dict[str, Any]:
    row = dict(vars(answer.jurors[index]))
    row["class"] = row.pop("class_")
    keys = ("model", "samples", "scored", "cause", "class", "agreement", "agrees", "dissent")
    return {key: row[key] for key in (*keys, "rules_confidence", "note")}


def _hypothesis(answer: Answer, index: int) -> dict[str, Any]:
    row = dict(vars(answer.hypotheses[index]))
    row["class"], row["change"] = row.pop("class_"), row.pop("change_id")
    keys = ("cause", "class", "score", "confidence", "explained_share", "change")
    return {
        key: row[key] for key in (*keys, "evidence", "contradicting", "competitors", "missing")
    }


def _fix(answer: Answer, index: int) -> dict[str, Any]:
    row = dict(vars(answer.fixes[index]))
    row["change"] = row.pop("change_id")
    keys = ("kind", "phase", "target", "change", "action", "file", "undo")
    more = (
        "gate_passed",
        "explained_share",
        "trial",
        "approver",
        "revert_when",
        "strict",
        "confidence",
    )
    return {
        key: row[key] for key in (*keys, "risk", "reversible", "time_to_effect", "gate", *more)
    }


def _trial(answer: Answer) -> dict[str, Any]:
    trial = answer.trial
    keys = ("status", "device", "cause", "fault", "fix", "pairs", "reason")
    return {**{key: getattr(trial, key) for key in keys}, "details": trial.details or {}}


def _sources(case: Case) -> list[dict[str, Any]]:
    """What was read, by content: paths count from the folder that holds all of them."""
    rows = case.rows(
        "SELECT part, kind, format, path, bytes, sha256, status FROM source ORDER BY id"
    )
    paths = _below_common_folder([row[3] for row in rows])
    keys = ("part", "kind", "format", "path", "bytes", "sha256", "status")
    return [
        dict(zip(keys, (*row[:3], path, *row[4:]), strict=True))
        for row, path in zip(rows, paths, strict=True)
    ]


def _below_common_folder(paths: list[str]) -> list[str]:
    folders = [str(PurePath(p.split("!", 1)[0]).parent) for p in paths]
    if not folders or len({PurePath(f).is_absolute() for f in folders}) > 1:
        return [PurePath(p).name for p in paths]
    top = commonpath(folders)
    return [p if top in {"", "."} else str(PurePath(p).relative_to(top)) for p in paths]
