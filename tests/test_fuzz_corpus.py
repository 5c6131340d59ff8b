"""The small files that `scripts/fuzz.py` damages: every format has one, and no cut of one is silent."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from rca.bundle import Bundle, BundleFile
from rca.case import Case
from rca.errors import RcaError
from rca.ingest import ingest
from rca.parsers import formats, recognise
from rca.parsers.stream import read_head

CORPUS = sorted((Path(__file__).parent / "fuzz_corpus").iterdir())
_NOT_ALONE = {"nsys_report", "tsdb_block"}
"""What is only read with a program, or with files beside it."""


def _name(path: Path) -> str:
    return path.name


def test_every_format_has_a_file() -> None:
    assert {recognise(read_head(path)).name for path in CORPUS} == {f.name for f in formats()}


@pytest.mark.parametrize("path", CORPUS, ids=_name)
def test_files_are_sound(path: Path) -> None:
    name = recognise(read_head(path)).name
    assert path.name.startswith(name)
    if name in _NOT_ALONE:
        return
    with Case.create() as case:
        assert ingest(case, Bundle([BundleFile(path, path.name, "incident")])) == []
        assert case.rows("SELECT format, status FROM source") == [(name, "ok")]


@pytest.mark.parametrize("share", [0.5, 0.8, 0.98])
@pytest.mark.parametrize("path", CORPUS, ids=_name)
def test_a_cut_of_a_compressed_file_is_never_silent(
    path: Path, share: float, tmp_path: Path
) -> None:
    packed = gzip.compress(path.read_bytes(), mtime=0)
    cut = tmp_path / f"{path.name}.gz"
    cut.write_bytes(packed[: int(len(packed) * share)])
    with Case.create() as case:
        try:
            ingest(case, Bundle([BundleFile(cut, cut.name, "incident")]))
        except RcaError:
            return  # all of it is refused, in one line
        assert case.rows("SELECT status FROM source") == [("salvaged",)]
        assert case.rows("SELECT 1 FROM ingest_note WHERE level <> 'info'")
