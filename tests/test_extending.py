"""What docs/extending.md promises: a cause is one file, a parser one module of any package."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rca import parsers
from rca.bundle import Bundle, BundleFile
from rca.case import Case
from rca.catalogue import load
from rca.errors import ParseError
from rca.ingest import ingest
from rca.pipeline import Options, analyze, judge_again, try_again, write

PAGE = Path(__file__).parent.parent / "docs" / "extending.md"


def example(file: str) -> str:
    """The code block that docs/extending.md shows for a file."""
    text = PAGE.read_text(encoding="utf-8")
    found = re.search(
        rf"^`{re.escape(file)}`:\n\n```\w*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL
    )
    assert found, f"docs/extending.md shows no {file}"
    return found[1]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the path where a package can be put; packages are looked up anew."""
    monkeypatch.syspath_prepend(str(tmp_path))
    parsers.added.cache_clear()
    yield tmp_path
    parsers.added.cache_clear()
    for name in [m for m in sys.modules if m.startswith("queue_csv")]:
        del sys.modules[name]


def install(folder: Path, module: str, text: str) -> None:
    (folder / f"{module}.py").write_text(text)
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[rca.parsers]\n{module} = {module}\n")


def test_the_parser_of_the_page_reads_a_file(installed: Path, tmp_path: Path) -> None:
    install(installed, "queue_csv", example("queue_csv.py"))
    file = tmp_path / "queue.csv"
    file.write_text("time,service,waiting\n1769825700,vllm,3\n1769825715,vllm,24\n")
    with Case.create() as case:
        ingest(case, Bundle([BundleFile(file, file.name, "incident")]))
        assert case.rows("SELECT format, kind, status FROM source") == [
            ("queue_csv", "metrics", "ok")
        ]
        assert case.rows("SELECT ts_ns, value FROM sample ORDER BY ts_ns") == [
            (1_769_825_700_000_000_000, 3.0),
            (1_769_825_715_000_000_000, 24.0),
        ]
        (row,) = case.rows("SELECT name, labels['service'] FROM series")
        assert row == ("num_requests_waiting", "vllm")


def test_a_parser_that_cannot_be_loaded_is_named(installed: Path) -> None:
    install(installed, "queue_csv_broken", "import nothing_of_this_name\n")
    with pytest.raises(
        ParseError, match=r"the parser queue_csv_broken \(queue_csv_broken\) cannot be loaded"
    ):
        parsers.formats()


def test_the_cause_of_the_page_joins_the_catalogue(tmp_path: Path) -> None:
    (tmp_path / "slow_disk.toml").write_text(example("causes/slow_disk.toml"))
    known = load(tmp_path)
    assert known["slow_disk"].title == "Weights are read from a slow disk"
    assert set(load(None)) < set(known)


def test_a_case_keeps_the_causes_that_it_was_judged_by(tmp_path: Path) -> None:
    """What comes after analyze, on another machine perhaps, knows them too."""
    folder = tmp_path / "causes"
    folder.mkdir()
    shipped = PAGE.parent.parent / "rca" / "causes" / "batch_window_mismatch.toml"
    own = shipped.read_text().replace('id = "batch_window_mismatch"', 'id = "our_window"', 1)
    (folder / "our_window.toml").write_text(
        re.sub("(?m)^title = .*", 'title = "<b>Ours</b>"', own)
    )
    options = Options(
        trial_budget_s=None, causes=folder, without=frozenset({"batch_window_mismatch"})
    )
    bundle = PAGE.parent.parent / "sample_traces" / "03_batch_window_mismatch"
    with analyze([bundle], case_path=tmp_path / "case.duckdb", options=options) as case:
        assert case.verdict["verdict"]["cause"] == "our_window"
    shutil.rmtree(folder)
    with try_again(tmp_path / "case.duckdb", None, 1.0) as case:
        assert case.rows("SELECT status, reason FROM trial") == [
            ("not_run", "this cause is not in the reproducer")
        ]
        (path, *_) = [p for p in write(case, tmp_path / "out") if p.name == "postmortem.md"]
    assert "Ours" in path.read_text().splitlines()[0]
    with judge_again(tmp_path / "case.duckdb", None) as case:
        assert case.verdict["verdict"]["cause"] in ("our_window", "batch_window_mismatch")
