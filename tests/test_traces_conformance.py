"""Trace exports of other people: every count of the index, exactly; look-alikes refused with reason."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rca.case import Case
from rca.errors import BundleError

_DATA = os.environ.get("RCA_CONFORMANCE_DATA")


def _rows() -> list[dict[str, str]]:
    if not _DATA:
        return []
    with (Path(_DATA) / "traces" / "INDEX.tsv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


_COUNTS = """
SELECT count(*) AS n_spans,
    count(DISTINCT trace_id) AS n_traces,
    count(DISTINCT service) AS n_services,
    count(*) FILTER (parent_id IS NULL) AS n_root,
    count(*) FILTER (parent_id IS NOT NULL
        AND (trace_id, parent_id) NOT IN (SELECT (trace_id, span_id) FROM span)) AS n_orphan,
    count(*) - count(DISTINCT (trace_id, span_id)) AS n_dup,
    count(*) FILTER (start_ns IS NULL) AS n_no_start,
    count(*) FILTER (dur_ns IS NULL) AS n_no_dur,
    (SELECT count(*) FROM span_event) AS n_event,
    (SELECT count(*) FROM span_link) AS n_link,
    count(*) FILTER (status = 'error') AS n_error,
    min(start_ns) AS first_start_ns,
    max(start_ns + dur_ns) AS last_end_ns,
    CAST(sum(dur_ns) AS BIGINT) AS sum_duration_ns
FROM span"""


def test_index_is_there(conformance: Path) -> None:
    assert len(_rows()) >= 28


@pytest.mark.parametrize(
    "row", [r for r in _rows() if int(r["n_spans"])], ids=lambda r: r["file"]
)
def test_counts_are_those_of_the_oracle(
    row: dict[str, str], read_files: Callable[..., Case], conformance: Path
) -> None:
    case = read_files(conformance / "traces" / row["file"])
    [counts] = case.sql(_COUNTS).to_dicts()
    expected = {k: row[k] for k in counts}
    if row["sum_duration_ns"] == "0":  # the index writes the sum of nothing as nothing or 0
        counts["sum_duration_ns"] = counts["sum_duration_ns"] or 0
    assert {k: "" if v is None else str(v) for k, v in counts.items()} == expected
    bad = case.scalar("SELECT coalesce(sum(count), 0) FROM ingest_note WHERE code = 'bad_line'")
    assert bad == int(row["n_bad"])
    assert case.scalar("SELECT status FROM source") == ("salvaged" if bad else "ok")
    assert case.scalar("SELECT n_elements FROM source") == int(row["n_spans"]) + bad


@pytest.mark.parametrize(
    "row", [r for r in _rows() if not int(r["n_spans"])], ids=lambda r: r["file"]
)
def test_look_alikes_are_refused_or_read_whole(
    row: dict[str, str], read_files: Callable[..., Case], conformance: Path
) -> None:
    reasons = {
        "jaegerui_mockTraces.ts": "source code",
        "lamp_dataprepper-logs.json": "OpenSearch Data Prepper",
        "oltparrow_2_traces.json": "snake_case",
        "traceanalyzer_traces.json": "conversations",
    }
    path = conformance / "traces" / row["file"]
    if row["file"] == "jaegerui_testTrace.json":
        assert read_files(path).scalar("SELECT count(*) FROM span") == 4
        return
    with pytest.raises(BundleError, match=reasons[row["file"]]):
        read_files(path)


def test_the_same_spans_in_every_otlp_form_give_the_same_rows(
    read_files: Callable[..., Case], conformance: Path
) -> None:
    forms = (
        "otlp_json_single_object.json",
        "otlp_json_lines_py_file_exporter.jsonl",
        "otlp_protobuf_jsonformat_base64ids.json",
        "otlp_proto.bin",
    )
    query = """SELECT trace_id, span_id, parent_id, service, name, kind, start_ns, dur_ns, status,
        (attributes ->> '$."resource.host.name"') AS host,
        (attributes ->> '$."otel.scope.name"') AS scope FROM span ORDER BY ALL"""
    tables = [read_files(conformance / "traces" / form).sql(query) for form in forms]
    assert all(table.equals(tables[0]) for table in tables[1:])
