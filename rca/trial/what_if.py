"""Other settings on the incident's own workload: a study of the model, kept in the case."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl
from rich.console import Console
from rich.table import Table

from rca.case import Case, sql_text
from rca.errors import MissingExtra
from rca.models.cache_policies import Stream
from rca.models.infer import infer
from rca.models.what_if import Row, run_in_twin, tells_policies
from rca.plain import duration, number, percent, printable
from rca.trial import incident_figures, workload_facts

_TORCH = ("kv", "cache", "quant")
_ROWS_SQL = """
SELECT setting, load, engine, figure, value, low, high, unit, recommended, device
FROM what_if
WHERE study = ?
ORDER BY rowid
"""


@dataclass(frozen=True)
class Study:
    """What a study found.

    Attributes:
        rows: one figure of one setting each.
        left_out: what could not be tried, and why.
        notes: what the figures rest on.
    """

    name: str
    rows: list[Row]
    left_out: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def devices(self) -> str:
        """What the figures are of: each row names the model or the device that it ran on."""
        return "; ".join(dict.fromkeys(printable(row.device, 60) for row in self.rows))

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "study": self.name,
            "claim": f"figures of the model ({self.devices}): mechanism and direction only",
            "rows": [row._asdict() for row in self.rows],
            "left_out": self.left_out,
            "notes": self.notes,
        }


def run(case: Case, study: str) -> Study:
    """Try other settings on the case's workload, write table what_if, and give its rows back.

    Queueing studies need no torch; a part that does is left out where it is not installed.

    Args:
        case: a case with its recordings.
        study: 'batch', 'kv', 'cache', 'priority', 'replicas' or 'quant'.

    Raises:
        MissingExtra: the whole study needs torch, and it is not installed.
    """
    workload = infer(workload_facts.read(case))
    load = math.exp(incident_figures.observed(case).get("arrival_rate", 0.0))
    keys = recorded_keys(case) if study == "cache" else []
    rows = run_in_twin(study, workload.plan, load, keys)
    left_out: list[str] = []
    if study in _TORCH:
        from rca.models.reproduce import torch_runtime

        try:
            # Formats are compared with float32, whatever the service has.
            with torch_runtime(replace(workload.sizes, dtype="float32")) as made:
                from rca.models.what_if_torch import run_in_torch

                rows += run_in_torch(study, workload.plan, made)
        except MissingExtra as error:
            if not rows:
                raise
            left_out.append(str(error))
    _write(case, study, rows)
    notes = [_of_keys(keys)] if study == "cache" else []
    return Study(study, rows, left_out, notes)


def recorded_keys(case: Case) -> Stream:
    """Keys of caches and prefixes that the incident's spans name, with the time of each use, ns.

    Where spans of the incident name none, those of the baseline.
    """
    rows = case.rows(sql_text("findings", "key_access"))
    parts = {part for part, _, _ in rows}
    wanted = "incident" if "incident" in parts else "baseline"
    return [(at_ns, key) for part, at_ns, key in rows if part == wanted]


def _of_keys(keys: Stream) -> str:
    """Which stream of keys the policies were tried on."""
    told = f"{len(keys)} recorded uses of {len({key for _, key in keys})} keys"
    if tells_policies(keys):
        return f"Policies: {told}, replayed as they came; no model takes part."
    few = f"{told} are too few" if keys else "spans name no keys"
    return f"Policies: keys drawn like the workload's prefixes, since {few}."


def _write(case: Case, study: str, rows: Sequence[Row]) -> None:
    case.execute("DELETE FROM what_if WHERE study = ?", [study])
    found = [{"study": study, **row._asdict(), "value": float(row.value)} for row in rows]
    case.insert("what_if", pl.DataFrame(found, infer_schema_length=None))


def read(case: Case, study: str) -> list[Row]:
    """The rows of a study that a case holds."""
    return [
        Row(setting, load, engine, figure, value, unit, low, high, recommended, device)
        for setting, load, engine, figure, value, low, high, unit, recommended, device
        in case.rows(_ROWS_SQL, [study])
    ]  # fmt: skip


def render(study: Study, console: Console) -> None:
    """Print the study's tables: settings down, loads or figures across."""
    console.print(
        f"What if: {study.name}. Figures of the model ({study.devices}), not of production."
    )
    swept = [row for row in study.rows if row.figure == "slo_share"]
    is_swept = len({row.load for row in swept}) > 1
    if is_swept:
        console.print(_heat_map(swept))
    console.print(_figures(study.rows, is_swept))
    for line in study.notes:
        console.print(printable(line, 200))
    for line in study.left_out:
        console.print(f"Left out: {printable(line, 200)}")
    if not any(row.recommended for row in study.rows):
        console.print("No setting is recommended: none surely keeps the objective.")


def _heat_map(rows: Iterable[Row]) -> Table:
    """Share of requests that kept the objective; bold where the Wilson bound reaches .95."""
    from rca.models.slo import LEAST_SHARE

    rows = list(rows)
    loads = sorted({row.load for row in rows if row.load is not None})
    table = Table(title="Requests that kept the objective, by arrival rate")
    table.add_column("Setting", no_wrap=True)
    for load in loads:
        table.add_column(f"×{load:g}")
    by_setting: dict[str, dict[float | None, Row]] = {}
    for row in rows:
        by_setting.setdefault(row.setting, {})[row.load] = row
    for setting, cells in by_setting.items():
        shown = []
        for load in loads:
            cell = cells.get(load)
            text = percent(cell.value) if cell else ""
            sure = cell is not None and (cell.low or 0.0) >= LEAST_SHARE
            mark = " *" if cell and cell.recommended else ""
            shown.append(f"[bold]{text}{mark}[/bold]" if sure else text)
        table.add_row(setting, *shown)
    table.caption = "bold: the 95 % Wilson bound reaches 95 %; *: recommended"
    return table


def _figures(rows: Sequence[Row], only_recommended: bool) -> Table:
    """Each setting and load with its figures; of a large sweep only what is recommended."""
    kept = [row for row in rows if row.recommended or not only_recommended]
    table = Table(title="Recommended (*)" if only_recommended else "Figures; *: recommended")
    table.add_column("Setting", no_wrap=True)
    table.add_column("Figures")
    grouped: dict[tuple[str, float | None], list[Row]] = {}
    for row in kept:
        grouped.setdefault((row.setting, row.load), []).append(row)
    for (setting, load), rows_of in grouped.items():
        star = "* " if any(row.recommended for row in rows_of) else ""
        at = "" if load is None else f" at ×{load:g}"
        shown = ", ".join(f"{row.figure} {_shown(row)}" for row in rows_of)
        table.add_row(f"{star}{setting}{at}", shown)
    return table


def _shown(row: Row) -> str:
    if row.unit == "ns":
        return duration(row.value)
    return percent(row.value) if row.unit == "share" else number(row.value)
