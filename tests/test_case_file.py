"""The empty case that a case begins as: kept between runs, and never trusted when it is damaged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rca.case import Case
from rca.durable import cache_folder

CATALOG = """
    SELECT 'table' AS kind, sql FROM duckdb_tables() WHERE NOT internal
    UNION ALL SELECT 'view', sql FROM duckdb_views() WHERE NOT internal
    UNION ALL SELECT 'macro', macro_definition FROM duckdb_functions() WHERE NOT internal
    UNION ALL SELECT key, value FROM provenance
    ORDER BY ALL"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return cache_folder()


@pytest.fixture(autouse=True)
def forget(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Lets the next case begin as in a new process."""
    kept: dict[str, bytes] = {}
    monkeypatch.setattr("rca.case_file._KEPT", kept)
    return kept.clear


def catalog(path: Path) -> list[tuple[str, str]]:
    with Case.create(path) as case:
        return case.rows(CATALOG)


@pytest.mark.parametrize("other_process", [False, True])
def test_the_empty_case_is_made_once(
    other_process: bool,
    tmp_path: Path,
    forget: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = catalog(tmp_path / "first.duckdb")
    assert len(made) > 100
    monkeypatch.setattr(Case, "_fill", None)
    if other_process:
        forget()
    assert catalog(tmp_path / "second.duckdb") == made
    with Case.open(tmp_path / "second.duckdb") as case:
        case.execute("INSERT INTO provenance VALUES ('seed', '1')")
    assert catalog(tmp_path / "second.duckdb") == made, "replaced by an empty one"


@pytest.mark.parametrize("damage", ["cut", "not gzip", "flipped"])
def test_a_damaged_one_is_made_anew(
    damage: str, cache: Path, forget: Callable[[], None], tmp_path: Path
) -> None:
    made = catalog(tmp_path / "case.duckdb")
    (kept,) = cache.iterdir()
    sound = kept.read_bytes()
    middle = len(sound) // 2
    flipped = sound[:middle] + bytes([sound[middle] ^ 255]) + sound[middle + 1 :]
    kept.write_bytes({"cut": sound[:middle], "not gzip": b"no", "flipped": flipped}[damage])
    forget()
    assert catalog(tmp_path / "case.duckdb") == made
    assert kept.read_bytes()[:2] == sound[:2], "and kept again"
    assert len(kept.read_bytes()) > middle


def test_another_schema_has_another(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog(tmp_path / "case.duckdb")
    monkeypatch.setattr("rca.case.SCHEMA_VERSION", "test")
    assert ("schema_version", "test") in catalog(tmp_path / "case.duckdb")
    assert len(list(cache.iterdir())) == 2


def test_nothing_need_be_kept(
    tmp_path: Path, forget: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/none")
    made = catalog(tmp_path / "case.duckdb")
    forget()
    assert catalog(tmp_path / "case.duckdb") == made


def test_one_in_memory_is_as_one_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for the order of columns in EXCLUDE and REPLACE, which DuckDB keeps as sets."""
    count = f"SELECT kind, length(sql) FROM ({CATALOG}) ORDER BY ALL"
    with Case.create() as case:
        made = case.rows(count)
    with Case.create(tmp_path / "case.duckdb") as case:
        assert case.rows(count) == made
    with monkeypatch.context() as patch:
        patch.setattr(Case, "_fill", None)
        with Case.create() as case:
            assert case.rows(count) == made
            case.execute("INSERT INTO provenance VALUES ('seed', '1')")
    monkeypatch.setattr("rca.scratch.folder", (tmp_path / "none").open)
    with Case.create() as case:
        assert case.rows(count) == made


def test_a_folder_for_temporary_files_may_have_any_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog(tmp_path / "case.duckdb")
    place = tmp_path / "it's; DROP TABLE span"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    monkeypatch.setattr(Case, "_fill", None)
    with Case.create() as case:
        assert case.scalar("SELECT count(*) FROM span") == 0
