"""What slow requests have in common that the others have not."""

from __future__ import annotations

import json
from typing import Any

import polars as pl

from rca.case import Case
from rca.findings.cohort import query
from rca.findings.counts import discovery_rates, fisher, lift
from rca.findings.records import Cohort
from rca.plain import percent, printable

MOST_VALUES = 50
"""An attribute with more values than this is an identifier, unless it names services or operations."""
_KEPT = 200
_PHRASES = {
    "calls": "called {}",
    "operation": "went through {}",
    "failed operation": "failed in {}",
    "prompt tokens": "had prompts of {} tokens",
    "output tokens": "had answers of {} tokens",
    "tenant": "came from tenant {}",
    "model": "asked for model {}",
    "replica": "ran on {}",
}
_TOLD_FIRST = tuple(_PHRASES)


def compare(case: Case, cohort: Cohort) -> None:
    """Write slow_attribute, what lies furthest apart first."""
    case.clear(["slow_attribute"])
    if cohort.split_ns is None:
        return
    found = case.sql(query("attribute_pair"), (MOST_VALUES, cohort.split_ns))
    if found.is_empty():
        return
    rows = _distinct(found)
    n, other_n = int(rows["n_slow"][0]), int(rows["n_other"][0])
    hits, others = rows["n_slow_with"].to_numpy(), rows["n_other_with"].to_numpy()
    p_values = fisher(hits, n, others, other_n)
    ratio, low, high = lift(hits, n, others, other_n)
    told = rows.with_columns(
        pl.Series("p_value", p_values), pl.Series("q_value", discovery_rates(p_values)),
        pl.Series("lift", ratio), pl.Series("lift_low", low), pl.Series("lift_high", high),
        share_slow=pl.col("n_slow_with") / n, share_other=pl.col("n_other_with") / other_n,
        n_tested=pl.lit(len(rows)),
    )  # fmt: skip
    told = told.with_columns(apart=(pl.col("share_slow") - pl.col("share_other")).abs())
    told = told.sort(["apart", "attribute", "value"], descending=[True, False, False]).head(
        _KEPT
    )
    case.insert("slow_attribute", _with_words(case, told))


def _distinct(found: pl.DataFrame) -> pl.DataFrame:
    """One row for attributes that mark the same requests; the one that people know best stays."""
    place = {name: i for i, name in enumerate(_TOLD_FIRST)}
    known = pl.col("attribute").replace_strict(place, default=len(place), return_dtype=pl.Int64)
    plain = pl.col("attribute").str.starts_with("resource.")
    ordered = found.with_columns(place=known, is_resource=plain).sort(
        ["place", "is_resource", "attribute", "value"]
    )
    names = pl.concat_str("attribute", pl.lit("="), "value")
    return (
        ordered.with_columns(name=names)
        .group_by(["mark", "n_slow_with", "n_other_with"], maintain_order=True)
        .agg(
            pl.col("attribute", "value", "n_slow", "n_other").first(),
            pl.col("name").slice(1).alias("same_as"),
        )
        .with_columns(same_as=pl.col("same_as").map_elements(
            lambda names: json.dumps(sorted(names)), return_dtype=pl.String))
    )  # fmt: skip


def _with_words(case: Case, rows: pl.DataFrame) -> pl.DataFrame:
    reference = _reference_shares(case)
    recorded = {attribute for attribute, _ in reference}
    words: list[dict[str, Any]] = []
    for rank, row in enumerate(rows.to_dicts(), start=1):
        share = reference.get((row["attribute"], row["value"]))
        if share is None and row["attribute"] in recorded:
            share = 0.0
        words.append(
            {"rank": rank, "share_reference": share, "statement": _statement(row, share)}
        )
    told = pl.DataFrame(words, schema_overrides={"share_reference": pl.Float64})
    kept = rows.drop("mark", "apart")
    return pl.concat([kept, told], how="horizontal")


def _statement(row: dict[str, Any], share_reference: float | None) -> str:
    value = printable(row["value"], 80)
    phrase = _PHRASES.get(row["attribute"])
    name = printable(row["attribute"].removeprefix("resource."), 60)
    what = phrase.format(value) if phrase else f"had {name} = {value}"
    others = f"{percent(row['share_other'])} of the others"
    if share_reference is not None:
        others += f", {percent(share_reference)} of healthy requests"
    return f"{percent(row['share_slow'])} of the slow requests {what} ({others})"


def _reference_shares(case: Case) -> dict[tuple[str, str], float]:
    """Shares of healthy requests for what the table `cohort_request` itself holds."""
    rows = case.rows(query("reference_share"))
    return {(attribute, value): share for attribute, value, share in rows}
