"""A whole incident: analyze and report as commands, and queries on the case, each beside a reference.

The reference of a query is polars on the same columns in memory, its limit the sum of these columns
by DuckDB; both must give what they are asked for, and the answers of the query and of polars agree.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import polars as pl

from benchmarks import large, process, readers
from rca.case import Case

_COMMANDS = "\n## An incident of {mb:,.0f} MB\n\n| Command | CPU s | wall s | peak MB | bare scan of the files: CPU s | ratio |\n|---|---|---|---|---|---|"
_QUERIES = "\n| Query | rows read | ms | polars ms | ratio | sum of the columns ms | ratio |\n|---|---|---|---|---|---|---|"
_REPEATS = 5


class _Query(NamedTuple):
    """A question, the columns that it needs, and how polars answers it."""

    name: str
    sql: str
    table: str
    columns: tuple[str, ...]
    polars: Callable[[pl.DataFrame], float]


def _busy(rows: pl.DataFrame) -> float:
    ends = pl.col("start_ns") + pl.col("dur_ns")
    rows = rows.sort("start_ns").with_columns(ends.alias("end"))
    covered = pl.col("end").cum_max().shift(1).fill_null(pl.col("start_ns"))
    added = (pl.col("end") - pl.max_horizontal("start_ns", covered)).clip(0)
    return float(rows.select(added.sum()).item())


def _tail(rows: pl.DataFrame) -> float:
    bins = rows.group_by(pl.col("start_ns") // 10_000_000_000).agg(
        pl.col("dur_ns").quantile(0.99, "linear")
    )
    return float(bins["dur_ns"].sum())


def _kernels(rows: pl.DataFrame) -> float:
    sums = rows.group_by("name").agg(pl.len(), pl.col("dur_ns").sum()).sort("dur_ns")
    return float(sums["dur_ns"].tail(20).sum())


_GPU = "gpu_op WHERE flaw IS NULL AND kind = 'kernel'"
_SPANS = "span WHERE start_ns IS NOT NULL AND dur_ns IS NOT NULL"
_ASKED = (
    _Query(
        "GPU busy time (gpu_breakdown)",
        "SELECT sum(busy_ns) FROM gpu_breakdown WHERE device IS NOT NULL",
        _GPU, ("start_ns", "dur_ns"), _busy,
    ),
    _Query(
        "Top 20 kernels (kernel_summary)",
        "SELECT sum(total_ns) FROM (FROM kernel_summary ORDER BY total_ns DESC LIMIT 20)",
        _GPU, ("name", "dur_ns"), _kernels,
    ),
    _Query(
        "p99 of spans per 10 s, exact",
        f"SELECT sum(p) FROM (SELECT quantile_cont(dur_ns, 0.99) AS p FROM {_SPANS}"
        " GROUP BY start_ns // 10000000000)",
        _SPANS, ("start_ns", "dur_ns"), _tail,
    ),
)  # fmt: skip


def lines(mb: int) -> Iterator[str]:
    """The tables of an incident of about so many MB, made anew."""
    with tempfile.TemporaryDirectory() as folder:
        bundle, out = Path(folder, "bundle"), Path(folder, "out")
        size_mb = large.make(bundle, mb)
        yield _COMMANDS.format(mb=size_mb)
        limit = _scan_s(bundle)
        analysed = large.analyse(bundle, out, None)
        yield _command("rca analyze --no-trial", analysed, limit)
        reported = process.run([*large.RCA, "report", str(out / "case.duckdb")])
        yield _command("rca report", reported, limit)
        yield _QUERIES
        with Case.open(out / "case.duckdb", read_only=True) as case:
            yield from answers(case)


def answers(case: Case) -> Iterator[str]:
    """A row of the table of queries for each query."""
    for query in _ASKED:
        yield _asked(case, query)


def _command(name: str, taken: process.Taken | large.Run, limit_s: float) -> str:
    return (
        f"| {name} | {taken.cpu_s:.1f} | {taken.wall_s:.1f} | {taken.peak_mb:,.0f}"
        f" | {limit_s:.2f} | {taken.cpu_s / limit_s:.1f} |"
    )


def _scan_s(bundle: Path) -> float:
    """CPU seconds to find the JSON values in the large files of a bundle."""
    began = time.process_time()
    for path in sorted((bundle / "incident").glob("more*.json")):
        readers.scan(path)
    return time.process_time() - began


def _asked(case: Case, query: _Query) -> str:
    columns = ", ".join(query.columns)
    sums = ", ".join(f"sum(length({c}))" if c == "name" else f"sum({c})" for c in query.columns)
    rows = case.sql(f"SELECT {columns} FROM {query.table}")
    answer, ours = _best(lambda: float(case.scalar(query.sql)))
    other, theirs = _best(lambda: query.polars(rows))
    _, limit = _best(lambda: float(case.rows(f"SELECT {sums} FROM {query.table}")[0][0]))
    assert abs(answer - other) <= 1e-9 * abs(other), (query.name, answer, other)
    return (
        f"| {query.name} | {rows.height:,} | {ours:.0f} | {theirs:.0f} | {ours / theirs:.1f}"
        f" | {limit:.0f} | {ours / limit:.1f} |"
    )


def _best(ask: Callable[[], float]) -> tuple[float, float]:
    """An answer, and the best of some times to it in ms."""
    times = []
    for _ in range(_REPEATS):
        began = time.perf_counter()
        answer = ask()
        times.append((time.perf_counter() - began) * 1000)
    return answer, min(times)
