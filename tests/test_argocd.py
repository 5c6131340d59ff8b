"""Argo CD: an application, a list of them and a bare history become deployments."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rca.case import Case
from rca.errors import BundleError, ParseError
from rca.parsers import recognise
from rca.parsers.format import Head

Read = Callable[..., Case]
_AT = 1_700_000_000_000_000_000  # 2023-11-14 22:13:20
_CHANGES = "SELECT id, ts_ns, kind, subject, before, after, origin, details FROM change ORDER BY subject, ts_ns"
_SOURCE = {
    "repoURL": "https://git.example.com/deploy.git", "path": "apps/llm-engine", "targetRevision": "main",
    "helm": {"parameters": [{"name": "maxNumSeqs", "value": "16"}, {"name": "api_key", "value": "s3cret"}]},
}  # fmt: skip
_FEWER = _SOURCE | {"helm": {"parameters": [{"name": "maxNumSeqs", "value": "2"}, {"name": "api_key", "value": "n3w"}]}}  # fmt: skip
_HISTORY = [
    {
        "id": 6, "revision": "aaa111", "deployedAt": "2023-11-13T10:00:00Z", "source": _SOURCE,
        "deployStartedAt": "2023-11-13T09:59:58Z", "initiatedBy": {"automated": True},
    },
    {"id": 7, "revision": "bbb222", "deployedAt": "2023-11-14T22:13:20Z", "source": _FEWER},
]  # fmt: skip


def _application(
    name: str = "llm-engine", history: Any = _HISTORY, **more: Any
) -> dict[str, Any]:
    return {
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
        "metadata": {"name": name, "namespace": "argocd"},
        "spec": {"source": _FEWER, "destination": {"namespace": "prod"}},
        "status": {
            "history": history,
            "operationState": {
                "operation": {"initiatedBy": {"username": "mira"}}, "syncResult": {"revision": "bbb222"},
            },
        },
        **more,
    }  # fmt: skip


def _read(document: Any, path: Path, read_files: Read) -> Case:
    path.write_text(json.dumps(document), encoding="utf-8")
    case = read_files(path)
    assert case.rows("SELECT format, kind FROM source") == [("argocd", "change")]
    return case


def test_an_application(tmp_path: Path, read_files: Read) -> None:
    case = _read(_application(), tmp_path / "x.json", read_files)
    first, second = case.rows(_CHANGES)
    assert first[:7] == (
        "argocd-llm-engine-6", 1_699_869_600_000_000_000, "deploy", "application/llm-engine",
        None, "revision: aaa111", "record",
    )  # fmt: skip
    assert json.loads(first[7]) == {
        "argocd_id": 6, "started_at": "2023-11-13T09:59:58Z", "initiated_by": "automated", "namespace": "prod",
    }  # fmt: skip
    assert second[:7] == (
        "argocd-llm-engine-7", _AT, "deploy", "application/llm-engine",
        "revision: aaa111, helm.parameters.maxNumSeqs.value: 16",
        "revision: bbb222, helm.parameters.maxNumSeqs.value: 2", "record",
    )  # fmt: skip
    assert json.loads(second[7])["initiated_by"] == "mira"
    assert "s3cret" not in str(case.rows("SELECT * FROM change")) + str(
        case.rows("SELECT * FROM config")
    )
    assert ("Application/llm-engine", "source.targetRevision", "main") in case.rows(
        "SELECT subject, key, value FROM config"
    )


@pytest.mark.parametrize("form", ["List", "ApplicationList", "array", "client"])
def test_lists(form: str, tmp_path: Path, read_files: Read) -> None:
    both: Any = [_application("a"), _application("b")]
    if form == "client":  # argocd's own client leaves the kind out
        both = [
            {k: v for k, v in one.items() if k not in ("kind", "apiVersion")} for one in both
        ]
    listed = (
        both
        if form in ("array", "client")
        else {"kind": form, "apiVersion": "v1", "items": both}
    )
    case = _read(listed, tmp_path / "x.json", read_files)
    assert [(r[0], r[3]) for r in case.rows(_CHANGES)] == [
        (f"argocd-{name}-{number}", f"application/{name}") for name in "ab" for number in (6, 7)
    ]


def test_a_bare_history(tmp_path: Path, read_files: Read) -> None:
    case = _read(_HISTORY, tmp_path / "history.json", read_files)
    assert [(r[1], r[3]) for r in case.rows(_CHANGES)][1] == (_AT, "application/llm-engine")
    assert case.rows("SELECT code, example FROM ingest_note") == [
        ("assumed_subject", "llm-engine")
    ]


def test_several_sources(tmp_path: Path, read_files: Read) -> None:
    entries = [
        {
            "id": number, "revisions": ["1.2.0", f"c0ffee{number}"], "deployedAt": f"2023-11-14T2{number}:00:00Z",
            "sources": [{"chart": "vllm", "targetRevision": "1.2.0"}, {"path": f"values/{number}"}],
        }
        for number in (1, 2)
    ]  # fmt: skip
    [_, second] = _read(_application(history=entries), tmp_path / "x", read_files).rows(
        _CHANGES
    )
    assert second[4:6] == (
        "revision: 1.2.0 c0ffee1, sources.1.path: values/1",
        "revision: 1.2.0 c0ffee2, sources.1.path: values/2",
    )


def test_entries_without_a_time_are_counted(tmp_path: Path, read_files: Read) -> None:
    damaged = [{"id": 1, "revision": "x", "deployedAt": None}, 5, *_HISTORY]
    case = _read(_application(history=damaged), tmp_path / "x", read_files)
    assert case.rows("SELECT code, count FROM ingest_note") == [("not_a_deployment", 2)]
    assert case.rows("SELECT status, n_elements FROM source") == [("salvaged", 4)]
    assert len(case.rows(_CHANGES)) == 2


def test_no_time_at_all_is_an_error(tmp_path: Path, read_files: Read) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps([{"revision": "x", "deployedAt": "noon"}]), encoding="utf-8")
    with pytest.raises(BundleError, match="no deployment with a time"):
        read_files(path)


def test_an_application_that_was_never_deployed_is_configuration(tmp_path: Path) -> None:
    text = json.dumps(_application(status={}))
    assert recognise(Head(tmp_path, text.encode())).name == "config_yaml"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("deployment.apps/llm \nREVISION  CHANGE-CAUSE\n1         <none>\n2         kubectl set image --record=true\n", "replicasets,controllerrevisions -o json"),
        ("SOURCE  https://git.example.com/x\nID      DATE                           REVISION\n0       2023-11-14 22:13:20 +0000 UTC  main (aaa111)\n", "argocd app get NAME -o json"),
    ],
)  # fmt: skip
def test_histories_as_text_name_the_command_with_times(text: str, hint: str) -> None:
    with pytest.raises(ParseError, match="history") as told:
        recognise(Head(Path("x"), text.encode()))
    assert hint in str(told.value.hint)
