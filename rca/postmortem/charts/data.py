"""What the charts draw, read once a case and thinned so that a large case stays a small file."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from rca.answer import Answer, Evidence
from rca.case import Case, sql_files
from rca.plain import number
from rca.postmortem.chronicle import Event, alerts_of

DOTS = 1_200
STEPS = 240
_LANES = 12
_FEWEST = 10


@dataclass(frozen=True)
class Mark:
    """A change or an alert on the line of time."""

    ts_ns: int
    kind: str
    text: str


class ChartData:
    """The rows behind the charts of one case; every query runs at most once."""

    def __init__(self, case: Case, answer: Answer) -> None:
        self.case, self.answer = case, answer

    @cached_property
    def requests(self) -> pl.DataFrame:
        """All requests with `side`: 'healthy', 'incident' or null for what belongs to neither."""
        rows = self.case.sql(query("10_requests.sql"))
        window = self.answer.window
        start, end = window.start_ns, window.end_ns
        if start is None or end is None:
            return rows.with_columns(side=pl.lit(None, pl.String))
        incident = (pl.col("part") == "incident") & pl.col("start_ns").is_between(start, end)
        healthy = pl.col("part") == "baseline"
        if rows.filter(healthy).height < _FEWEST:
            before = start - (window.margin_ns or 0)
            healthy = (pl.col("part") == "incident") & (pl.col("start_ns") < before)
        side = pl.when(incident).then(pl.lit("incident")).when(healthy).then(pl.lit("healthy"))
        return rows.with_columns(side=side)

    @cached_property
    def recorded(self) -> pl.DataFrame:
        """The requests of the incident's recordings, in the order of their arrival."""
        return self.requests.filter(pl.col("part") == "incident")

    @cached_property
    def streams(self) -> pl.DataFrame:
        """Steps of time of the GPU streams that were busiest, with `lane`, its name."""
        rows = self.case.sql(query("20_streams.sql"), [STEPS])
        if rows.is_empty():
            return rows.with_columns(lane=pl.lit("", pl.String))
        several = rows["source_id"].n_unique() > 1
        lane = pl.format("GPU {} stream {}", "device", "stream")
        if several:
            lane = pl.format("capture {} · {}", "source_id", lane)
        rows = rows.with_columns(lane=lane)
        busiest = (
            rows.group_by("lane")
            .agg(pl.col("busy").sum())
            .sort(["busy", "lane"], descending=[True, False])
            .head(_LANES)
        )
        return rows.join(busiest.select("lane"), on="lane", how="semi")

    @cached_property
    def n_streams(self) -> int:
        """GPU streams of the incident's captures, drawn or not."""
        return int(
            self.case.scalar(
                "SELECT count(*) FROM (SELECT DISTINCT x.source_id, x.device, x.stream FROM gpu_op x "
                "JOIN source s ON s.id = x.source_id WHERE s.part = 'incident' AND x.flaw IS NULL)"
            )
        )

    @cached_property
    def ops(self) -> pl.DataFrame:
        """Kernels and operators of both parts."""
        return self.case.sql(query("30_ops.sql"))

    @cached_property
    def marks(self) -> list[Mark]:
        """Changes and alerts within an hour of the incident, in the order of time."""
        found = [
            Mark(e.ts_ns, e.source.split()[0], e.what)
            for e in _changes_and_alerts(self.case, self.answer)
        ]
        return sorted(found, key=lambda m: (m.ts_ns, m.text))

    def signals(self, chosen: list[Evidence]) -> list[list[tuple[int, float]]]:
        """Time and value of each signal in about 120 steps, in the order of `chosen`."""
        asked = [
            [e.role for e in chosen],
            [e.service or "" for e in chosen],
            [e.source for e in chosen],
        ]
        found: list[list[tuple[int, float]]] = [[] for _ in chosen]
        if not chosen or not self.case.has("signal_value"):
            return found
        for place, ts_ns, value in self.case.rows(query("40_signals.sql"), asked):
            if value is not None and math.isfinite(value):
                found[place].append((ts_ns, value))
        return found

    @cached_property
    def thinned(self) -> list[str]:
        """What is drawn of more than fits, in sentences."""
        said = []
        if self.recorded.height > DOTS:
            said.append(
                f"Drawn: {number(DOTS)} of {number(self.recorded.height)} requests, failed and slowest "
                "ones first; the band is of all of them."
            )
        if not self.streams.is_empty():
            ops = int(self.streams["n_begun"].sum())
            lanes = self.streams["lane"].n_unique()
            said.append(
                f"GPU streams: {number(lanes)} of {number(self.n_streams)}, {number(ops)} operations put "
                f"together in {STEPS} steps a capture."
            )
        return said


def query(name: str) -> str:
    """One query of the report, without its semicolon."""
    return dict(sql_files("report"))[name].strip().removesuffix(";")


def _changes_and_alerts(case: Case, answer: Answer) -> list[Event]:
    from rca.postmortem.chronicle import changes_of

    return [*changes_of(answer), *alerts_of(case, answer)]
