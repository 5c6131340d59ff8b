"""Write docs/schema.md from the comments in rca/sql/schema and rca/sql/views.

    python scripts/schema_docs.py           write the document
    python scripts/schema_docs.py --check   exit 1 when it is stale or a comment is missing

What the comments are about is compared with DuckDB's own catalogue, so a statement that is read
wrongly here shows as a difference and never as a silent gap.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rca.case import Case, sql_files

TARGET = Path(__file__).parent.parent / "docs" / "schema.md"
INTRO = """# Tables and views of a case

Generated from the comments in `rca/sql/schema` and `rca/sql/views` by `make docs`; do not edit.

A case is one DuckDB file: `rca query case.duckdb "SELECT ..."` or any DuckDB client reads it. Times
are nanoseconds since the Unix epoch (UTC) as recorded, durations are nanoseconds, sizes are bytes.
What the clocks of the sources differ by stands in `source.shift_ns` only.
"""
_TOKEN = re.compile(
    r"(?P<comment>--[^\n]*)|(?P<string>'(?:[^']|'')*')|(?P<quoted>\"(?:[^\"]|\"\")*\")"
    r"|(?P<word>[A-Za-z_][A-Za-z0-9_]*)|(?P<other>[^\s])"
)
_CONSTRAINTS = {"PRIMARY", "UNIQUE", "CHECK", "FOREIGN", "CONSTRAINT"}
_ENDS_SELECT = {"FROM", "UNION", "WHERE", "QUALIFY", "ORDER", "LIMIT", "EXCEPT", "INTERSECT"}


@dataclass(frozen=True)
class Token:
    """A piece of SQL; `depth` counts the brackets around it."""

    kind: str
    text: str
    depth: int

    def says(self, *words: str) -> bool:
        """Whether it is one of these keywords."""
        return self.kind == "word" and self.text.upper() in words


@dataclass
class Documented:
    """A table, view or macro with its comments."""

    kind: str
    name: str
    file: str
    about: str
    columns: list[tuple[str, str]] = field(default_factory=list)


def read(file: str, text: str) -> Iterator[Documented]:
    """Everything that a file creates, with its comments."""
    for statement in _statements(list(_tokens(text))):
        code = [t for t in statement if t.kind != "comment"]
        kind = next(
            (t.text.upper() for t in code[:4] if t.says("TABLE", "VIEW", "MACRO")), None
        )
        if not code or not code[0].says("CREATE") or kind is None:
            continue
        at = next(i for i, t in enumerate(statement) if t.says(kind))
        found = Documented(kind, statement[at + 1].text, file, _leading_comment(statement))
        body = statement[at + 2 :]
        if kind == "TABLE":
            found.columns = [_column(item) for item in _split(body, 1) if _is_column(item)]
        elif kind == "VIEW":
            found.columns = [_output(item) for item in _split(_select_list(body), 0)]
        yield found


def problems(
    objects: list[Documented], catalogue: dict[str, list[tuple[str, str]]]
) -> list[str]:
    """One line for every comment that is missing or read differently from DuckDB."""
    unseen = sorted(set(catalogue) - {o.name for o in objects})
    found = [f"{name}: in the catalogue, but not found in the SQL files" for name in unseen]
    for item in objects:
        where = f"{item.file}: {item.name}"
        if not item.about:
            found.append(f"{where} has no comment above it")
        if item.kind == "MACRO":
            continue
        real = [column for column, _ in catalogue.get(item.name, [])]
        read_as = [column for column, _ in item.columns]
        if real != read_as:
            found.append(f"{where}: DuckDB has columns {real}, the SQL reads as {read_as}")
        found += [
            f"{where}.{column} has no comment above it"
            for column, about in item.columns
            if not about
        ]
    return found


def catalogue_of() -> dict[str, list[tuple[str, str]]]:
    """Columns and types of every table and view as DuckDB has them."""
    with Case.create() as case:
        rows = case.rows(
            "SELECT table_name, column_name, data_type FROM duckdb_columns() "
            "WHERE NOT internal ORDER BY table_name, column_index"
        )
    found: dict[str, list[tuple[str, str]]] = {}
    for table, column, kind in rows:
        found.setdefault(table, []).append((column, kind))
    return found


def document(objects: list[Documented], catalogue: dict[str, list[tuple[str, str]]]) -> str:
    """docs/schema.md as text."""
    parts = [INTRO]
    for title, kind in (("Tables", "TABLE"), ("Views", "VIEW"), ("Macros", "MACRO")):
        chosen = [o for o in objects if o.kind == kind]
        if not chosen:
            continue
        parts.append(f"## {title}\n")
        for item in chosen:
            types = dict(catalogue.get(item.name, []))
            parts.append(f"### {item.name}\n\n{_escape(item.about)}\n")
            if item.columns:
                rows = [
                    f"| {column} | {_escape(types.get(column, ''))} | {_escape(about)} |"
                    for column, about in item.columns
                ]
                parts.append(
                    "| Column | Type | Meaning |\n|---|---|---|\n" + "\n".join(rows) + "\n"
                )
    return "\n".join(parts)


def main(arguments: list[str]) -> int:
    """Write or check the document."""
    objects = [
        o
        for folder in ("schema", "views")
        for f, text in sql_files(folder)
        for o in read(f, text)
    ]
    catalogue = catalogue_of()
    found = problems(objects, catalogue)
    text = document(objects, catalogue)
    if "--check" in arguments:
        current = TARGET.read_text(encoding="utf-8") if TARGET.is_file() else ""
        if current != text:
            found.append("docs/schema.md is stale; run: make docs")
    elif not found:
        TARGET.write_text(text, encoding="utf-8")
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


def _tokens(text: str) -> Iterator[Token]:
    depth = 0
    for match in _TOKEN.finditer(text):
        kind, piece = str(match.lastgroup), match[0]
        if kind == "other" and piece in ")]}":
            depth -= 1
        yield Token(kind, piece.strip('"') if kind == "quoted" else piece, depth)
        if kind == "other" and piece in "([{":
            depth += 1


def _statements(tokens: list[Token]) -> Iterator[list[Token]]:
    statement: list[Token] = []
    for token in tokens:
        if token.text == ";" and token.depth == 0:
            yield statement
            statement = []
        else:
            statement.append(token)
    if any(t.kind != "comment" for t in statement):
        yield statement


def _leading_comment(tokens: list[Token]) -> str:
    lines = []
    for token in tokens:
        if token.kind != "comment":
            break
        lines.append(token.text.removeprefix("--").strip())
    return " ".join(lines)


def _split(tokens: list[Token], depth: int) -> list[list[Token]]:
    """The tokens between the commas of a depth; brackets of a lower depth are left out."""
    items: list[list[Token]] = [[]]
    for token in tokens:
        if token.text == "," and token.depth == depth:
            items.append([])
        elif token.depth >= depth:
            items[-1].append(token)
    return [item for item in items if any(t.kind != "comment" for t in item)]


def _is_column(item: list[Token]) -> bool:
    return not next(t for t in item if t.kind != "comment").says(*_CONSTRAINTS)


def _column(item: list[Token]) -> tuple[str, str]:
    return next(t.text for t in item if t.kind != "comment"), _leading_comment(item)


def _output(item: list[Token]) -> tuple[str, str]:
    """A column of a view: its name is the last word, after AS or after the table's alias."""
    return [t.text for t in item if t.kind != "comment"][-1], _leading_comment(item)


def _select_list(body: list[Token]) -> list[Token]:
    """What stands between the outermost SELECT and its FROM; of a union, its first part."""
    start = next((i for i, t in enumerate(body) if t.depth == 0 and t.says("SELECT")), None)
    if start is None:
        return []
    rest = body[start + 1 :]
    if rest and rest[0].says("DISTINCT", "ALL"):
        rest = rest[1:]
    end = next(
        (i for i, t in enumerate(rest) if t.depth == 0 and t.says(*_ENDS_SELECT)), len(rest)
    )
    return rest[:end]


def _escape(text: str) -> str:
    return re.sub(r"([|*_`\[\]])", r"\\\1", text).replace("<", "&lt;").replace(">", "&gt;")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
