"""How rows are printed: whole where they fit, one below the other where they do not."""

from __future__ import annotations

import io
from pathlib import Path

import case_builder
import pytest

from rca import query
from rca.case import Case


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def case(tmp_path: Path) -> Path:
    path = tmp_path / "case.duckdb"
    with Case.create(path):
        pass
    return path


def shown(
    case: Path,
    sql: str,
    monkeypatch: pytest.MonkeyPatch,
    width: int = 80,
    *,
    pipe: bool = False,
) -> str:
    for name, value in (("COLUMNS", str(width)), ("TERM", "xterm"), ("NO_COLOR", "1")):
        monkeypatch.setenv(name, value)
    out = io.StringIO() if pipe else Terminal()
    query.run(case, sql, "table", out)
    return case_builder.without_style(out.getvalue())


WIDE = "SELECT i AS number, 'value ' || i AS text, repeat('x', 70) AS long, i * 2 AS twice FROM range({}) t(i)"


def test_a_table_that_fits_stays_a_table(case: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown(case, "SELECT 1 AS a, 'two' AS b", monkeypatch).splitlines()
    assert [line.split() for line in (lines[0], lines[2])] == [
        ["a", "┃", "b"],
        ["1", "│", "two"],
    ]


def test_few_wide_rows_stand_one_below_the_other(
    case: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = shown(case, WIDE.format(2), monkeypatch)
    assert [line for line in text.splitlines() if line.startswith("row")] == ["row 1", "row 2"]
    assert text.count("x") == 140 + 2  # nothing is cut; 'text' has an x as well
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(
    ("width", "said"), [(30, "left out: long, twice"), (80, "long values are cut")]
)
def test_many_wide_rows_say_what_is_left_out(
    case: Path, monkeypatch: pytest.MonkeyPatch, width: int, said: str
) -> None:
    text = shown(case, WIDE.format(50), monkeypatch, width)
    assert said in text.replace("\n", " ")
    assert max(map(len, text.splitlines())) <= width
    assert len(text.splitlines()) >= 52


def test_a_pipe_gets_everything(case: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(case, WIDE.format(50), monkeypatch, pipe=True)
    assert text.count("x" * 70) == 50


def test_names_in_rows_are_no_markup(case: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(
        case,
        "SELECT '[bold]a[/bold]' || chr(27) || '[31m' AS \"[red]n\", repeat('y', 90) AS b",
        monkeypatch,
    )
    assert "[bold]a[/bold]\\e[31m" in text
    assert "[red]n" in text
    assert "\x1b" not in text
