"""The house keeps its own rules: documents, packaging, start-up, sizes."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent
HEAVY = {
    "torch",
    "sklearn",
    "scipy",
    "openai",
    "altair",
    "vl_convert",
    "pandas",
    "dask",
    "jinja2",
}


def tracked(*patterns: str) -> list[str]:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: which files belong to the project is not known")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--", *patterns], cwd=ROOT, capture_output=True, check=True
    )
    return [
        name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).is_file()
    ]


@pytest.fixture(scope="module")
def schema_docs() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "schema_docs", ROOT / "scripts" / "schema_docs.py"
    )
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["schema_docs"] = module
    spec.loader.exec_module(module)
    return module


def test_every_table_view_and_column_is_documented(
    schema_docs: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    code = schema_docs.main(["--check"])
    assert capsys.readouterr().err == ""
    assert code == 0


def test_missing_and_misread_comments_are_found(schema_docs: ModuleType) -> None:
    sql = """
-- A table.
CREATE TABLE t (
    -- Number, with a comma; and 'quotes'.
    a INTEGER,
    b DECIMAL(10, 2) DEFAULT 0, -- trailing words are no comment above
    PRIMARY KEY (a)
);
CREATE VIEW v AS
-- A step that needs no comment on its columns.
WITH w AS (SELECT a, b FROM t)
SELECT
    -- First, of (several) words.
    coalesce(w.a,
        -- why the second value stands here
        0) AS a,
    w.b
FROM w;
"""
    table, view = schema_docs.read("x.sql", sql)
    assert table.columns == [("a", "Number, with a comma; and 'quotes'."), ("b", "")]
    assert view.columns == [("a", "First, of (several) words."), ("b", "")]
    real = {
        "t": [("a", "INTEGER"), ("b", "DECIMAL")],
        "v": [("a", "INTEGER"), ("c", "DECIMAL")],
        "u": [],
    }
    assert schema_docs.problems([table, view], real) == [
        "u: in the catalogue, but not found in the SQL files",
        "x.sql: t.b has no comment above it",
        "x.sql: v has no comment above it",
        "x.sql: v: DuckDB has columns ['a', 'c'], the SQL reads as ['a', 'b']",
        "x.sql: v.b has no comment above it",
    ]


def test_wheel_holds_exactly_the_tracked_files(tmp_path: Path) -> None:
    for name in tracked("rca", "pyproject.toml", "README.md", "LICENSE"):
        target = tmp_path / "source" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, target)
    build = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(tmp_path),
    ]
    done = subprocess.run(
        [*build, str(tmp_path / "source")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = {n for n in archive.namelist() if ".dist-info/" not in n}
        metadata = next(n for n in archive.namelist() if n.endswith("METADATA"))
        assert b"License-Expression: Apache-2.0" in archive.read(metadata)
    assert names == set(tracked("rca"))


@pytest.mark.parametrize("name", ["parsers", "models"])
def test_links_lead_into_the_package(name: str) -> None:
    link = ROOT / name
    assert link.is_symlink()
    assert link.readlink() == Path("rca") / name


def test_help_starts_without_heavy_packages() -> None:
    program = (
        "import sys\n"
        "sys.argv = ['rca', '--help']\n"
        "from rca.cli import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code\n"
        "print('LOADED', *sorted({m.split('.')[0] for m in sys.modules}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.rsplit("LOADED", 1)[1].split())
    assert not loaded & HEAVY
    assert "analyze" in done.stdout


def test_commands_and_documents_agree() -> None:
    import typer

    from rca.cli import app

    commands = set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    assert {"analyze", "query", "report"} <= commands
    listed = re.findall(
        r"^\| `rca ([a-z]+)", (ROOT / "docs" / "commands.md").read_text(), re.MULTILINE
    )
    assert set(listed) == commands
    texts = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    told = re.findall(
        r"`rca ([a-z]+)\b", "\n".join(p.read_text(encoding="utf-8") for p in texts)
    )
    assert sorted(set(told) - commands) == []


def test_architecture_names_every_module_and_no_other() -> None:
    table = (
        (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").split("| Module |")[1]
    )
    cells = re.findall(r"^\| (`[^|]*) \|", table.split("\n\n")[0], re.MULTILINE)
    named = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
    there = {p.stem for p in (ROOT / "rca").glob("*.py")} | {
        p.parent.name for p in (ROOT / "rca").glob("*/__init__.py")
    }
    assert named == there - {"__init__", "errors"}


def test_documents_link_to_files_that_exist() -> None:
    for name in tracked("*.md", ":!tests/golden"):  # those are without what lies beside them
        for target in re.findall(r"\]\(([^)#\s]+)", (ROOT / name).read_text(encoding="utf-8")):
            if "://" not in target:
                assert (ROOT / name).parent.joinpath(target).exists(), f"{name} → {target}"


def test_python_files_can_be_taken_in() -> None:
    long = {
        name: len((ROOT / name).read_text(encoding="utf-8").splitlines())
        for name in tracked("*.py")
    }
    assert {name: lines for name, lines in long.items() if lines > 400} == {}


def test_data_files_are_small() -> None:
    sizes = {name: (ROOT / name).stat().st_size for name in tracked()}
    assert {name: n for name, n in sizes.items() if n > 3_000_000} == {}
