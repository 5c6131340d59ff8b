"""Any engine's metrics → roles, as roles.toml knows them."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

import polars as pl

from rca.case import Case
from rca.labels import told
from rca.op_families import roles_by_operator


@dataclass(frozen=True)
class Role:
    """One role of roles.toml; its head says what the fields mean."""

    id: str
    meaning: str
    unit: str
    layer: str
    combine: str
    devices: str


@dataclass(frozen=True)
class _Rule:
    role: Role
    how: str
    scale: float
    where: dict[str, re.Pattern[str]] = field(default_factory=dict)
    service_label: str | None = None
    instead: bool = False

    def fits(self, labels: dict[str, str]) -> bool:
        return all(p.fullmatch(labels.get(k, "")) for k, p in self.where.items())


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(files("rca").joinpath("roles.toml").read_text(encoding="utf-8"))


@cache
def roles() -> dict[str, Role]:
    """All roles by id."""
    return {
        name: Role(
            name, row["meaning"], row["unit"], row["layer"], row["combine"],
            row.get("devices", row["combine"]),
        )
        for name, row in _table().items()
    }  # fmt: skip


def metrics() -> list[tuple[str, str, str]]:
    """Metric, how it is read, and the role's layer, for every source of every role."""
    return [
        (source["metric"], source["how"], row["layer"])
        for row in _table().values()
        for source in row["sources"]
    ]


def metric_names() -> dict[str, frozenset[str]]:
    """Metrics that carry each role, as roles.toml writes them."""
    return {
        role: frozenset(source["metric"] for source in row["sources"])
        for role, row in _table().items()
    }


def sources(role: str, name: str, how: str) -> dict[str, str]:
    """What the labels of a series must match to carry a role: label → regular expression."""
    for rule in _rules().get(normalise(name), ()):
        if rule.role.id == role and rule.how == how:
            return {label: form.pattern for label, form in rule.where.items()}
    return {}


@cache
def _rules() -> dict[str, list[_Rule]]:
    """Rules by the normalised name of the series they read."""
    found: dict[str, list[_Rule]] = {}
    for name, row in _table().items():
        for source in row["sources"]:
            for ending, how in _ENDINGS[source["how"]]:
                where = {k: re.compile(v) for k, v in source.get("where", {}).items()}
                scale = float(source.get("mask", source.get("scale", 1.0)))
                rule = _Rule(
                    roles()[name],
                    how,
                    1.0 if how == "den" else scale,
                    where,
                    source.get("service"),
                    source.get("instead", False),
                )
                found.setdefault(normalise(source["metric"] + ending), []).append(rule)
    return found


_ENDINGS = {
    "gauge": [("", "gauge")],
    "rate": [("", "rate")],
    "histogram": [("_sum", "num"), ("_count", "den")],
    "count": [("_count", "rate")],
    "num": [("", "num")],
    "den": [("", "den")],
    "gnum": [("", "gnum")],
    "gden": [("", "gden")],
    "bits": [("", "bits")],
}


def normalise(name: str) -> str:
    """A metric's name as roles.toml writes it: without 'ray_', ':' and '_total'."""
    name = name.removeprefix("ray_").replace(":", "_")
    return (
        name.removesuffix("_total")
        if not name.startswith("vllm_iteration_tokens_total")
        else name
    )


def assign(case: Case) -> int:
    """Write series_role for every series, op_family for every operator; returns the series' rows.

    A metric that roles.toml does not know takes part as 'metric:NAME': counters by their rate,
    histograms and summaries by their mean, the rest as it stands.
    """
    case.clear(["series_role", "op_family"])
    rows = _without_seconds(
        row
        for found in case.rows("SELECT id, name, labels, type FROM series ORDER BY id")
        for row in _carried(*found)
    )
    families = [{"name": op, "role": role} for op, role in roles_by_operator().items()]
    case.insert("op_family", pl.DataFrame(families))
    return case.insert("series_role", pl.DataFrame(rows, schema_overrides=_TOLD)) if rows else 0


def _without_seconds(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows, those of sources that stand in for others only where there are no others."""
    found = list(rows)
    first = {row["role"] for row in found if not row["instead"]}
    kept = [row for row in found if not (row["instead"] and row["role"] in first)]
    return [{k: v for k, v in row.items() if k != "instead"} for row in kept]


_TOLD = dict.fromkeys(("device", "model", "runtime", "tenant"), pl.String)


def _carried(
    series_id: int, name: str, labels: dict[str, str], kind: str
) -> Iterator[dict[str, Any]]:
    """Rows of series_role: one for each role that the series carries."""
    plain = normalise(name)
    common = {"series_id": series_id, **told(plain, labels)._asdict()}
    known = [r for r in _rules().get(plain, ()) if r.fits(labels)]
    for rule in known:
        role = rule.role
        row = {
            "role": role.id, "how": rule.how, "scale": rule.scale, "combine": role.combine,
            "devices": role.devices, "instead": rule.instead,
        }  # fmt: skip
        service = labels.get(rule.service_label or "") or common["service"]
        yield {**common, **row, "service": service}
    if not known and (own := _own_role(name, labels, kind)):
        row = {
            "role": own[0],
            "how": own[1],
            "scale": 1.0,
            "combine": "mean",
            "devices": "mean",
            "instead": False,
        }
        yield {**common, **row}


_SILENT = re.compile(
    r".*(_bucket|_created|_info|_timestamp_seconds|_time_seconds)$|^(up|scrape_.*|ALERTS.*)$"
    # Kernels and loads tried one after the other have no common mean; a capture has views of its own.
    r"|^(ncu_|perf_analyzer_|nsys_gpu_).*"
)


def _own_role(name: str, labels: dict[str, str], kind: str) -> tuple[str, str] | None:
    """Role and way of reading of a metric that has none in roles.toml, None when it says nothing."""
    if _SILENT.match(name) or normalise(name.removesuffix("_bucket") + "_sum") in _rules():
        return None
    if name.endswith("_sum"):
        return f"metric:{name.removesuffix('_sum')}", "num"
    if name.endswith("_count") and kind != "gauge":
        return f"metric:{name.removesuffix('_count')}", "den"
    detail = f"{{quantile={labels['quantile']}}}" if "quantile" in labels else ""
    return f"metric:{name}{detail}", "rate" if kind == "counter" else "gauge"
