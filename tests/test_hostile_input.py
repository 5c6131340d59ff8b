"""Odd bundles and queries end in one line that says what is wrong, or are read all the same."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest

from rca import query
from rca.bundle import find
from rca.case import Case
from rca.errors import BundleError, QueryError
from rca.window import locate


@pytest.mark.parametrize(
    "settings",
    [
        {"incident": "02:17"},
        {"incident": [1]},
        {"slo": "fast"},
        {"slo": [1, 2]},
        {"incident": {"start": "2500-01-01T00:00:00Z", "end": "2501-01-01T00:00:00Z"}},
        {"incident": {"start": "0001-01-01T00:00:00+23:00", "end": "2026-01-01T00:00:00Z"}},
    ],
)
def test_a_setting_of_the_wrong_form_is_named(settings: dict[str, Any]) -> None:
    with Case.create() as case, pytest.raises(BundleError, match=r"^bundle\.toml: "):
        locate(case, settings)


def test_file_names_are_text_whatever_their_bytes(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"m\xff\xfe.json")).write_text("{}")
    found = find([tmp_path], None, tmp_path / "work").files[0]
    assert found.name.endswith("m\\xff\\xfe.json")
    assert found.path.is_file()


def test_a_link_to_itself_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "loop.json").symlink_to("loop.json")
    (tmp_path / "a.json").write_text("{}")
    found = find([tmp_path], None, tmp_path / "work").files
    assert [f.path.name for f in found] == ["a.json"]


def test_a_byte_order_mark_in_bundle_toml_is_read_over(tmp_path: Path) -> None:
    (tmp_path / "bundle.toml").write_text("title = 'x'", encoding="utf-8-sig")
    (tmp_path / "a.json").write_text("{}")
    assert find([tmp_path], None, tmp_path / "work").settings == {"title": "x"}


@pytest.mark.parametrize(
    ("sql", "output"),
    [
        ("", "table"),
        (";", "json"),
        ("SELECT 1 AS a, 2 AS a", "table"),
        ("SELECT INTERVAL 1 DAY", "csv"),
        ("SELECT {'a': INTERVAL 1 DAY}", "csv"),
        ("SELECT 'infinity'::TIMESTAMP", "table"),
        ("SELECT 'infinity'::DATE", "json"),
        ("SELECT DATE '-2000-01-01'", "table"),
        ("SELECT 'x'::BLOB", "csv"),
        ("SELECT 'x'::BLOB", "json"),
    ],
)
def test_rows_that_cannot_be_shown_are_refused(tmp_path: Path, sql: str, output: str) -> None:
    Case.create(tmp_path / "case.duckdb").close()
    with pytest.raises(QueryError):
        query.run(tmp_path / "case.duckdb", sql, output, io.StringIO())


def test_nested_columns_become_text_in_csv(tmp_path: Path) -> None:
    Case.create(tmp_path / "case.duckdb").close()
    out = io.StringIO()
    query.run(tmp_path / "case.duckdb", "SELECT [1, NULL] AS a, {'b': 2} AS c", "csv", out)
    assert out.getvalue() == "a,c\n\"[1, None]\",{'b': 2}\n"


def test_attributes_that_are_no_numbers_leave_the_figure_open() -> None:
    attributes = json.dumps(
        {"gen_ai.latency.e2e": "soon", "gen_ai.usage.input_tokens": "many", "gen_ai.x": 1e300}
    )
    with Case.create() as case:
        case.execute(
            "INSERT INTO span (source_id, trace_id, span_id, name, start_ns, dur_ns, status, attributes)"
            " VALUES (1, 't', 's', 'llm_request', 0, 5, 'ok', ?)",
            [attributes],
        )
        assert case.rows("SELECT e2e_ns, input_tokens FROM engine_span") == [(None, None)]
