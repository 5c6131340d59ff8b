"""NVIDIA's own analyses of a bundle's reports: run beside ours, kept in the case, and compared."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl

from rca import nsys
from rca.bundle import Bundle
from rca.case import Case
from rca.errors import NsysError
from rca.nsys import recipe as nsys_recipe
from rca.parsers.nsys_report import FORMAT, plain

RECIPES = (
    "cuda_gpu_kern_sum", "cuda_api_sum", "gpu_gaps", "gpu_time_util", "cuda_api_sync",
    "cuda_memcpy_sync", "cuda_memcpy_async", "nvtx_gpu_proj_sum", "nccl_gpu_proj_sum",
)  # fmt: skip
DEFAULT_BUDGET_S = 60.0
_RESULTS = ("rank_stats.parquet", "analysis.parquet")
_COLUMNS = {  # of recipe_row: what recipes call it
    "name": ("Name", "Text", "API Name"), "start_ns": ("Start",), "dur_ns": ("Duration",),
    "pid": ("PID",), "tid": ("TID",), "device": ("Device ID",), "bytes": ("Bytes",),
    "use_share": ("In-Use",), "count": ("Instances", "Num Calls", "Count"),
    "total_ns": ("Total Time", "Sum"), "min_ns": ("Min",), "max_ns": ("Max",),
}  # fmt: skip
_TYPES = {"name": pl.String, "use_share": pl.Float64, "device": pl.Int32}


def run(case: Case, bundle: Bundle, budget_s: float | None) -> None:
    """Run the recipes over the reports that were read; write recipe_run, recipe_row and notes.

    Nothing here stops an analysis: what cannot be run is said once in a note.

    Args:
        budget_s: Wall time for all reports together, None for no recipes.
    """
    sources = case.rows(
        "SELECT id, path, part, coalesce(base_ns, 0) FROM source WHERE format = ? ORDER BY id",
        [FORMAT.name],
    )
    if not sources or not budget_s:
        return
    try:
        program, python = nsys.find(), nsys_recipe.find_python()
    except NsysError as error:
        _note(
            case, None, "info", "recipes_off", f"no recipes of Nsight Systems: {error}", 1, None
        )
        return
    files = {(file.name, file.part): file.path for file in bundle.files}
    deadline = time.monotonic() + budget_s
    for source_id, path, part, base_ns in sources:
        if (path, part) in files:
            with _session(files[path, part], program, python) as lent:
                for recipe in RECIPES:
                    _try(case, source_id, base_ns, recipe, lent, deadline)
        _compare(case, source_id)


@contextmanager
def _session(report: Path, program: Path, python: Path) -> Iterator[nsys_recipe.Session]:
    with plain(report) as file, nsys_recipe.session([file], program, python) as lent:
        yield lent


def _try(
    case: Case,
    source_id: int,
    base_ns: int,
    recipe: str,
    lent: nsys_recipe.Session,
    deadline: float,
) -> None:
    """Run one recipe in the time that is left, and keep what it said."""
    left = deadline - time.monotonic()
    rows, status, reason = None, "not_run", "the time for recipes was up"
    if left > 0:
        try:
            folder = lent.run(recipe, timeout_s=left)
            rows = _rows(folder, recipe, base_ns) if folder else None
            status, reason = "no_data" if rows is None else "rows", ""
        except (NsysError, OSError, pl.exceptions.PolarsError) as error:
            status, reason = "failed", _line(error)
    if rows is not None:
        case.insert("recipe_row", rows, source_id=source_id)
    row = {"recipe": recipe, "status": status, "reason": reason or None}
    types = dict.fromkeys(row, pl.String)
    case.insert("recipe_run", pl.DataFrame([row], schema=types), source_id=source_id)


def _line(error: Exception) -> str:
    return error.problem if isinstance(error, NsysError) else str(error).splitlines()[0]


def _rows(folder: Path, recipe: str, base_ns: int) -> pl.DataFrame | None:
    """A recipe's Parquet as rows of recipe_row, None when it has none."""
    found = [folder / name for name in _RESULTS if (folder / name).is_file()]
    if not found:
        return None
    table = pl.read_parquet(found[0])
    columns = [_column(table, name, theirs) for name, theirs in _COLUMNS.items()]
    return table.select(columns).with_columns(
        pl.col("start_ns") + base_ns, pl.col("use_share") / 100,
        pl.Series("fields", [json.dumps(row, default=str) for row in table.to_dicts()], dtype=pl.String),
        pl.int_range(table.height, dtype=pl.Int32).alias("number"),
        pl.lit(recipe).alias("recipe"),
    )  # fmt: skip


def _column(table: pl.DataFrame, name: str, theirs: tuple[str, ...]) -> pl.Expr:
    there = [t for t in theirs if t in table.columns]
    source = pl.col(there[0]) if there else pl.lit(None)
    return source.cast(_TYPES.get(name, pl.Int64), strict=False).alias(name)


def _compare(case: Case, source_id: int) -> None:
    """Note where recipes and our own tables differ, and what could not be run."""
    for recipe, n, example in case.rows(
        """SELECT recipe, count(*), min(coalesce(name || ': ', '') || 'theirs '
            || coalesce(theirs, 'none') || ', ours ' || coalesce(ours, 'none'))
        FROM recipe_check WHERE source_id = ? AND NOT agrees GROUP BY recipe ORDER BY recipe""",
        [source_id],
    ):
        message = f"NVIDIA's recipe {recipe} and our figures differ; see the view recipe_check"
        _note(case, source_id, "warning", f"recipe_differs_{recipe}", message, n, example)
    agreed = case.scalar(
        "SELECT count(*) FROM recipe_check WHERE source_id = ? AND agrees", [source_id]
    )
    if agreed:
        message = "figures of NVIDIA's recipes that ours are equal to"
        _note(case, source_id, "info", "recipes_agree", message, agreed, None)
    failed = case.rows(
        "SELECT recipe, reason FROM recipe_run WHERE source_id = ? AND status IN ('failed', 'not_run')",
        [source_id],
    )
    if failed:
        message = f"recipes of Nsight Systems that gave nothing: {failed[0][1]}"
        _note(case, source_id, "info", "recipes_failed", message, len(failed), failed[0][0])


def _note(
    case: Case,
    source_id: int | None,
    level: str,
    code: str,
    message: str,
    count: int,
    example: str | None,
) -> None:
    row: dict[str, Any] = {
        "level": level,
        "code": code,
        "message": message,
        "count": count,
        "example": example,
    }
    types = dict.fromkeys(row, pl.String) | {"count": pl.Int64}
    case.insert("ingest_note", pl.DataFrame([row], schema=types), source_id=source_id)
