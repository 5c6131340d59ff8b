"""The benchmark's recordings are sound, the same each time, and read to the same number of rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import generate, readers
from rca.case import Case


@pytest.mark.parametrize("form", generate.NAMES)
def test_each_form_is_read_whole(form: str, tmp_path: Path, read_files: object) -> None:
    path = tmp_path / "recording"
    generate.write(form, path, 300_000)
    if form in generate.FORMS:
        assert path.read_text() == "".join(generate.FORMS[form](300_000, generate.START_S))
    assert 250_000 <= path.stat().st_size < 3_000_000
    case: Case = read_files(path)  # type: ignore[operator]
    n_elements, status = case.rows("SELECT n_elements, status FROM source")[0]
    assert (n_elements, status) == (readers.USUAL[form](path), "ok")
    assert readers.rca_case(path) > 0
    assert readers.scan(path) > 0
