"""Change records: JSON lines, lists and CSV; damaged ones are counted, ids are made where missing."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from revisions_builder import Rollout, controller_revisions, replica_sets

from rca.case import Case
from rca.errors import BundleError
from rca.parsers.times import iso_ns, point_ns

Read = Callable[..., Case]
_ROWS = "SELECT id, ts_ns, kind, subject, before, after, origin FROM change ORDER BY ts_ns"
_NS = 1_700_000_000_376_000_000
_ONE = {
    "id": "chg-1", "time": "2023-11-14T22:13:20.376Z", "kind": "config",
    "subject": "deployment/llm-engine", "before": "--max-num-seqs=16", "after": "--max-num-seqs=2",
}  # fmt: skip
_ROW = (
    "chg-1",
    _NS,
    "config",
    "deployment/llm-engine",
    "--max-num-seqs=16",
    "--max-num-seqs=2",
    "record",
)


def test_json_lines(tmp_path: Path, read_files: Read) -> None:
    path = tmp_path / "changes.jsonl"
    later = {
        **_ONE,
        "id": "chg-2",
        "time": 1_700_000_001.5,
        "before": None,
        "after": {"replicas": 3},
    }
    path.write_text(f"{json.dumps(_ONE)}\n{json.dumps(later)}\n", encoding="utf-8")
    case = read_files(path)
    assert case.rows(_ROWS) == [
        _ROW,
        (
            "chg-2",
            1_700_000_001_500_000_000,
            "config",
            "deployment/llm-engine",
            None,
            '{"replicas":3}',
            "record",
        ),
    ]
    assert case.rows("SELECT kind, status, n_elements FROM source") == [("change", "ok", 2)]


def test_list_and_csv(tmp_path: Path, read_files: Read) -> None:
    listed, table = tmp_path / "changes.json", tmp_path / "changes.csv"
    listed.write_text(json.dumps([_ONE], indent=1), encoding="utf-8")
    table.write_text(",".join(_ONE) + "\n" + ",".join(_ONE.values()) + "\n", encoding="utf-8")
    assert read_files(listed).rows(_ROWS) == [_ROW]
    assert read_files(table).rows(_ROWS) == [_ROW]


def test_damaged_lines_are_counted(tmp_path: Path, read_files: Read) -> None:
    path = tmp_path / "changes.jsonl"
    lines = [
        json.dumps(_ONE),
        '{"id": "x", "tim',
        '{"time": "yesterday", "subject": "a", "after": "b"}',
        '{"time": 1}',
    ]
    path.write_text("\n".join(lines), encoding="utf-8")
    case = read_files(path)
    assert case.rows(_ROWS) == [_ROW]
    assert case.rows("SELECT code, count FROM ingest_note") == [("bad_record", 3)]
    assert case.rows("SELECT status, n_elements FROM source") == [("salvaged", 4)]


@pytest.mark.parametrize("name", ["c.csv", "c.jsonl", "c.json", "pretty.json"])
def test_what_a_cut_takes_is_said(name: str, tmp_path: Path, read_files: Read) -> None:
    """Half of a compressed file: whole records are kept, the one that is cut is counted."""
    records = [
        {**_ONE, "id": f"chg-{hashlib.sha256(b'%d' % n).hexdigest()}"} for n in range(300)
    ]
    text = {
        "c.csv": "\n".join([",".join(_ONE), *(",".join(r.values()) for r in records)]),
        "c.jsonl": "\n".join(map(json.dumps, records)),
        "c.json": json.dumps(records),
        "pretty.json": json.dumps(records, indent=2),
    }[name]
    packed = gzip.compress(text.encode())
    path = tmp_path / f"{name}.gz"
    path.write_bytes(packed[: len(packed) // 2])
    case = read_files(path)
    kept = [i for (i,) in case.rows("SELECT id FROM change ORDER BY rowid")]
    assert 100 < len(kept) < 200
    assert kept == [r["id"] for r in records[: len(kept)]]
    assert case.rows("SELECT status FROM source") == [("salvaged",)]
    notes = dict(case.rows("SELECT code, count FROM ingest_note"))
    assert notes["truncated"] == 1 and notes.get("bad_record", 1) == 1

    plain = tmp_path / name
    plain.write_text(text[: len(text) // 2 + 20], encoding="utf-8")
    case = read_files(plain)
    assert case.scalar("SELECT count(*) FROM change") == 150
    assert case.rows("SELECT code, count FROM ingest_note") == [("bad_record", 1)]


def test_objects_over_many_lines(tmp_path: Path, read_files: Read) -> None:
    """One that is written over many lines, and several of them one after another, as jq prints."""
    path = tmp_path / "change.json"
    path.write_text(json.dumps(_ONE, indent=2), encoding="utf-8")
    assert read_files(path).rows(_ROWS) == [_ROW]
    damaged = json.dumps({**_ONE, "after": {"a": 1}}, indent=2).replace('"kind":', '"kind"')
    texts = (json.dumps({**_ONE, "id": i}, indent=2) for i in ("a", "b"))
    path.write_text("\n".join([next(texts), damaged, next(texts)]), encoding="utf-8")
    case = read_files(path)
    assert case.rows("SELECT id FROM change") == [("a",), ("b",)]
    assert case.rows("SELECT code, count FROM ingest_note") == [("bad_record", 1)]


def test_nothing_readable_is_an_error(tmp_path: Path, read_files: Read) -> None:
    path = tmp_path / "changes.jsonl"
    path.write_text('{"time": "never", "subject": "a", "after": "b"}\n', encoding="utf-8")
    with pytest.raises(BundleError, match="not one change record"):
        read_files(path)


def test_missing_ids_are_made_of_the_record(tmp_path: Path, read_files: Read) -> None:
    first, second = (
        {k: v for k, v in _ONE.items() if k != "id"} | {"after": a} for a in ("1", "2")
    )
    path = tmp_path / "changes.jsonl"
    path.write_text("\n".join(map(json.dumps, (first, second))), encoding="utf-8")
    ids = [r[0] for r in read_files(path).rows(_ROWS)]
    assert len(set(ids)) == 2
    assert ids == [r[0] for r in read_files(path).rows(_ROWS)]


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("2023-11-14T22:13:20.123456789Z", 1_700_000_000_123_456_789),
        ("2023-11-14T22:13:20,5", 1_700_000_000_500_000_000),
        ("2023-11-14 23:13:20+01:00", 1_700_000_000_000_000_000),
        ("2023-11-14T16:43:20-0530", 1_700_000_000_000_000_000),
        ("2023-11-14T22:13", 1_699_999_980_000_000_000),
        ("1969-12-31T23:59:59Z", -1_000_000_000),
        ("1700000000", 1_700_000_000_000_000_000),
        ("1700000000.376", _NS),
        ("1700000000376", _NS),
        ("1700000000376000", _NS),
        ("1700000000376000001", _NS + 1),
        ("2023-13-14T22:13:20Z", None),
        ("noon", None),
        ("", None),
    ],
)
def test_points_in_time(text: str, ns: int | None) -> None:
    assert point_ns(text) == ns


def test_a_number_is_no_iso_time() -> None:
    assert iso_ns("1700000000") is None


def test_kubernetes_events(tmp_path: Path, read_files: Read) -> None:
    def event(
        reason: str, message: str, kind: str, name: str, level: str = "Normal"
    ) -> dict[str, object]:
        return {
            "kind": "Event", "reason": reason, "message": message, "type": level, "count": 2,
            "involvedObject": {"kind": kind, "name": name}, "metadata": {"uid": f"u-{reason}"},
            "firstTimestamp": "2023-11-14T22:13:20Z", "eventTime": None,
        }  # fmt: skip

    items = [
        event(
            "ScalingReplicaSet", "Scaled up replica set llm-7f to 3 from 2", "Deployment", "llm"
        ),
        event("Killing", "Stopping container vllm", "Pod", "llm-7f-x"),
        event("Unhealthy", "Readiness probe failed", "Pod", "llm-7f-x", "Warning"),
    ]
    path = tmp_path / "events.json"
    path.write_text(
        json.dumps({"apiVersion": "v1", "kind": "List", "items": items}), encoding="utf-8"
    )
    case = read_files(path)
    at = 1_700_000_000_000_000_000
    assert case.rows(_ROWS + ", id DESC") == [
        (
            "u-ScalingReplicaSet",
            at,
            "scale",
            "deployment/llm",
            "replicas: 2",
            "replicas: 3",
            "k8s_event",
        ),
        (
            "u-Killing",
            at,
            "restart",
            "pod/llm-7f-x",
            None,
            "Stopping container vllm",
            "k8s_event",
        ),
    ]
    assert case.rows("SELECT level, message FROM log WHERE level = 'warning'") == [
        ("warning", "Unhealthy: Readiness probe failed")
    ]
    assert case.scalar("SELECT count(*) FROM config") == 0


_ROLLOUTS: list[Rollout] = [
    (5, "2026-01-31T02:00:00Z", "vllm:0.9", ["--max-num-seqs=64", "--api-key=s3cret"]),
    (4, "2026-01-31T01:00:00Z", "vllm:0.8", ["--max-num-seqs=64"]),
    (7, "2026-01-31T04:00:00Z", "vllm:0.9", ["--max-num-seqs", "8", "--api-key=s3cret"]),
    (8, "2026-01-31T05:00:00Z", "vllm:0.9", ["--max-num-seqs", "8", "--api-key=s3cret"]),
]


@pytest.mark.parametrize(
    ("made", "kind"), [(replica_sets, "deployment"), (controller_revisions, "statefulset")]
)
def test_revisions_are_changes_against_the_one_before(
    made: Callable[..., object], kind: str, tmp_path: Path, read_files: Read
) -> None:
    path = tmp_path / "revisions.json"
    path.write_text(json.dumps(made("vllm", _ROLLOUTS), indent=4))
    case = read_files(path)
    assert case.rows("SELECT format, kind, status FROM source") == [
        ("k8s_revisions", "change", "ok")
    ]
    rows = case.rows(
        "SELECT id, kind, subject, before, after, details->>'revision', details->>'previous_revision' "
        "FROM change ORDER BY ts_ns"
    )
    of = f"{kind}/vllm"
    assert rows == [
        ("vllm-0004", "deploy", of, None, "image: vllm:0.8", "4", None),
        ("vllm-0005", "deploy", of, "image: vllm:0.8", "image: vllm:0.9, api_key: <hidden>", "5", "4"),
        ("vllm-0007", "config", of, "max_num_seqs: 64", "max_num_seqs: 8", "7", "5"),
        ("vllm-0008", "restart", of, None, None, "8", "7"),
    ]  # fmt: skip


def test_a_revision_that_was_rolled_back_to_is_said(tmp_path: Path, read_files: Read) -> None:
    rollouts = [
        (9, "2026-01-31T01:00:00Z", "vllm:0.8", []),
        (8, "2026-01-31T02:00:00Z", "vllm:0.9", []),
    ]
    path = tmp_path / "revisions.json"
    path.write_text(json.dumps(replica_sets("vllm", rollouts)))
    case = read_files(path)
    assert case.rows("SELECT details->>'previous_revision' FROM change") == [(None,), (None,)]
    assert case.rows("SELECT code, example FROM ingest_note WHERE level = 'warning'") == [
        ("rolled_back", "deployment/llm/vllm revision 9")
    ]


@pytest.mark.parametrize("number", ["²", "9" * 5000, "-1", ""])
def test_a_revision_needs_a_number(number: str, tmp_path: Path, read_files: Read) -> None:
    listed = replica_sets("vllm", _ROLLOUTS)
    listed["items"][0]["metadata"]["annotations"] = {
        "deployment.kubernetes.io/revision": number
    }
    path = tmp_path / "revisions.json"
    path.write_text(json.dumps(listed))
    case = read_files(path)
    assert case.rows("SELECT code, count FROM ingest_note") == [("not_a_revision", 1)]
    assert case.scalar("SELECT count(*) FROM change") == len(_ROLLOUTS) - 1


def test_replica_sets_without_an_owner_are_no_revisions(
    tmp_path: Path, read_files: Read
) -> None:
    listed = replica_sets("vllm", _ROLLOUTS)
    for item in listed["items"]:
        del item["metadata"]["ownerReferences"]
    path = tmp_path / "revisions.json"
    path.write_text(json.dumps(listed))
    with pytest.raises(BundleError, match="holds no revision of a workload"):
        read_files(path)
