"""Whole bundles: every file gets a format, and nothing in it is lost."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rca.bundle import Bundle, BundleFile
from rca.case import Case
from rca.ingest import ingest

_DATA = os.environ.get("RCA_CONFORMANCE_DATA")
_ROOT = Path(_DATA or ".")
_BUNDLES = sorted([*_ROOT.glob("incidents/inc-*"), *_ROOT.glob("vllm/vllm-*")]) if _DATA else []
_KINDS = {"changes.jsonl": "change", "llm-engine.yaml": "config", "vllm.log.gz": "log"}


def _kind(path: Path) -> str:
    return _KINDS.get(path.name) or (
        "metrics" if "metrics" in path.name or "query" in path.name else "trace"
    )


def test_bundles_are_there(conformance: Path) -> None:
    assert len(_BUNDLES) == 15


@pytest.mark.parametrize("folder", _BUNDLES, ids=lambda p: p.name)
def test_bundle_is_read_whole(folder: Path) -> None:
    files = [
        BundleFile(path, str(path.relative_to(folder)), path.relative_to(folder).parts[0])
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "truth.toml" and "pt.trace" not in path.name
    ]
    with Case.create() as case:
        assert ingest(case, Bundle(files)) == []
        found = case.rows("SELECT path, kind, status FROM source ORDER BY path")
        same = {f.name for f in files} - {f[0] for f in found}
        assert found == sorted(
            (f.name, _kind(f.path), "ok") for f in files if f.name not in same
        )
        assert not same or all("config" in name for name in same)
        worse = "SELECT code, message FROM ingest_note WHERE level <> 'info'"
        assert case.rows(worse) == []
        assert case.scalar("SELECT count(*) FROM source WHERE n_rows < n_elements") == 0
        spans = "SELECT count(*) FROM span WHERE start_ns IS NULL OR dur_ns IS NULL OR service IS NULL"
        assert case.scalar(spans) == 0
