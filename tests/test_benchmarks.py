"""The benchmark's recordings are sound, the same each time, and read to the same number of rows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import generate, growth, incident, process, readers
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


def test_the_exponent_of_a_power_is_found() -> None:
    assert growth.exponent([(10, 3 * 10**1.2), (100, 3 * 100**1.2), (5, -1)]) == pytest.approx(
        1.2
    )


def test_processes_of_processes_are_measured() -> None:
    child = "x = b'1' * 200_000_000; import time; time.sleep(0.5)"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}]); print('done')"
    taken = process.run([sys.executable, "-c", code])
    assert taken.output == "done\n"
    assert 200 < taken.peak_mb < 400
    assert taken.cpu_s > 0
    with pytest.raises(subprocess.CalledProcessError):
        process.run([sys.executable, "-c", "raise SystemExit(1)"])


def test_queries_and_their_reference_agree(tmp_path: Path, read_files: object) -> None:
    profile, spans = tmp_path / "profile", tmp_path / "spans"
    generate.write("PyTorch Profiler JSON", profile, 300_000)
    generate.write("Jaeger JSON", spans, 300_000)
    case: Case = read_files(profile, spans)  # type: ignore[operator]
    rows = list(incident.answers(case))
    assert len(rows) == 3
    assert all(line.count("|") == 8 for line in rows)
