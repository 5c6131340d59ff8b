"""Signals of a case: every metric, request figure, span group and capture as points in time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import polars as pl

from rca.case import Case
from rca.plain import quantity, role_words

Times = npt.NDArray[np.int64]
Values = npt.NDArray[np.float64]


class Points(NamedTuple):
    """Points of one signal on one side, in time order.

    The value over a span of time is num.sum() / den.sum().
    """

    ts_ns: Times
    num: Values
    den: Values

    @property
    def values(self) -> Values:
        """Value at each point."""
        return self.num / self.den

    def pick(self, mask: npt.NDArray[np.bool_]) -> Points:
        """The points where the mask is true."""
        return Points(self.ts_ns[mask], self.num[mask], self.den[mask])

    def between(self, start_ns: int, end_ns: int) -> Points:
        """The points in [start_ns, end_ns]."""
        return self.pick((self.ts_ns >= start_ns) & (self.ts_ns <= end_ns))

    def blocks(self, size: int) -> Points:
        """Neighbouring points pooled, `size` at a time; what is left over joins the last block."""
        if size <= 1:
            return self
        starts = np.arange(0, len(self.ts_ns) - size + 1, size)
        num, den = np.add.reduceat(self.num, starts), np.add.reduceat(self.den, starts)
        return Points(self.ts_ns[starts], num, den)

    def pooled(self) -> float:
        """Value over all points, NaN when there are none."""
        total = float(self.den.sum())
        return float(self.num.sum()) / total if total else float("nan")

    def on_grid(self, start_ns: int, step_ns: int, bins: int) -> Values:
        """Value in each of `bins` steps from start_ns on, NaN where there is no point."""
        return self.counted_on_grid(start_ns, step_ns, bins)[0]

    def counted_on_grid(self, start_ns: int, step_ns: int, bins: int) -> tuple[Values, Values]:
        """The same, and the denominators: for a mean the number of observations in each step."""
        slot = (self.ts_ns - start_ns) // step_ns
        keep = (slot >= 0) & (slot < bins)
        num = np.bincount(slot[keep], self.num[keep], bins).astype(np.float64)
        den = np.bincount(slot[keep], self.den[keep], bins).astype(np.float64)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(den > 0, num / den, np.nan), den


EMPTY = Points(np.array([], np.int64), np.array([]), np.array([]))


@dataclass(frozen=True)
class Signal:
    """One signal on both sides.

    Attributes:
        source: 'metrics', 'trace', 'log', 'torch_profiler', 'nsys' or 'gpu'.
        role: Role of roles.toml or signals.toml, a name of groups.toml, or 'metric:NAME'.
        service: Service it speaks of, '' when unknown.
        subject: Operation of a span or another group, device of a metric by device, '' for all other signals.
    """

    source: str
    role: str
    service: str
    subject: str
    incident: Points
    baseline: Points

    @property
    def known(self) -> bool:
        """Whether its role is one that causes speak of."""
        return self.role in meanings()


class Meaning(NamedTuple):
    """What a role says.

    Attributes:
        events: Whether it counts rare events, to be judged by their number.
        spread: Share of its level that it strays by without any cause.
        least: What it strays by at any level, in its unit.
        idle_by: Role of the same device that tells whether it falls because there is less to do.
        counted: Whether it counts what happens, so that the number tells as much as the level.
        words: What moved of a group, `{}` being the group; '' for roles.
    """

    meaning: str
    unit: str
    layer: str
    events: bool = False
    spread: float = 0.05
    least: float = 1e-12
    idle_by: str | None = None
    counted: bool = False
    words: str = ""


CAPTURES = ("torch_profiler", "nsys", "gpu")
"""Sources that hold a stretch of time chosen by somebody: captures."""
GROUPED = ("trace", "torch_profiler", "nsys")
"""Sources of which evidence names groups as NAME:GROUP, NAME one of groups.toml; a log line is its own name."""
_SPREAD = 0.05
_OPERATOR_SPREAD = 0.12
"""A single capture holds other steps than the next one."""
_LEAST = {
    "ratio": 0.01, "share": 0.01, "%": 1.0, "s": 1e-5, "unix s": 1e-5, "requests": 0.3, "1/s": 0.02, "requests/s": 0.05,
    "per scrape": 0.02, "per matrix multiplication": 0.03,
}  # fmt: skip


def limit_of(role: str, threshold: float, is_slope: bool) -> tuple[str, str]:
    """What an alert watches and its threshold, as people read them: a role, or its growth a second."""
    known = meanings().get(role)
    unit = known.unit if known else ""
    name = role_words(role)
    if is_slope:
        return f"{name} growth", quantity(threshold, f"{unit}/s")
    return name, quantity(threshold, unit)


@cache
def meanings() -> dict[str, Meaning]:
    """All roles that causes speak of: of metrics, of requests and spans, of operators."""
    import tomllib

    found: dict[str, Meaning] = {}
    for name in ("roles.toml", "signals.toml", "op_families.toml"):
        table = tomllib.loads(files("rca").joinpath(name).read_text(encoding="utf-8"))
        for role, row in table.items():
            unit, layer = row.get("unit", "per matrix multiplication"), row.get("layer", "code")
            found[role] = Meaning(
                row["meaning"],
                unit,
                layer,
                row.get("events", False),
                row.get("spread", _OPERATOR_SPREAD if layer == "code" else _SPREAD),
                row.get("least", _LEAST.get(unit, 1e-12)),
                row.get("idle_by"),
            )
    return found


@cache
def groups() -> dict[str, Meaning]:
    """What is told of groups that no cause speaks of: groups.toml, by name."""
    import tomllib

    text = files("rca").joinpath("groups.toml").read_text(encoding="utf-8")
    return {name: Meaning(layer="group", **row) for name, row in tomllib.loads(text).items()}


def group_of(source: str, role: str | None, subject: str) -> tuple[str, str] | None:
    """Name in groups.toml and the group that a row of evidence speaks of; None for all other rows."""
    if role is not None:
        return None
    if source == "log":
        return "line_rate", subject
    name, colon, group = subject.partition(":")
    return (name, group) if colon and source in GROUPED and name in groups() else None


_SPAN_ROLES = "('span_time', 'span_self', 'call_gap', 'span_errors')"


_loaded: WeakKeyDictionary[Case, tuple[int, list[Signal]]] = WeakKeyDictionary()


def load(case: Case, *, spans: bool = False) -> list[Signal]:
    """All signals in a stable order; groups of spans instead when `spans` is true.

    Values beyond 1e150 are no measurements: their squares are no numbers any more.

    Read once for several stages, and again when a recorded table has changed.
    """
    if spans:
        return _read(case, "span_signal", f"role IN {_SPAN_ROLES}")
    known = _loaded.get(case)
    if known is None or known[0] != case.generation:
        known = _loaded[case] = (
            case.generation,
            _read(case, "signal_value", f"role NOT IN {_SPAN_ROLES}"),
        )
    return known[1]


def by_device(case: Case) -> list[Signal]:
    """Metrics of devices, where a service has several, each device by itself: its name is the subject."""
    return _read(case, "device_signal", "true")


def _read(case: Case, view: str, wanted: str) -> list[Signal]:
    parts = case.batches(
        f"""
        SELECT source, role, service, subject, part, ts_ns, CAST(num AS DOUBLE) AS num, CAST(den AS DOUBLE) AS den
        FROM {view}
        WHERE {wanted} AND num IS NOT NULL AND den > 0 AND den < 1e150 AND abs(num) < 1e150
        """
    )
    return gathered(parts)


def gathered(parts: Iterable[pl.DataFrame]) -> list[Signal]:
    """Signals of rows as `signal_value` has them, in the order of their names."""
    # Names repeat on every row: as numbers they take a tenth of the memory, and sort in no time.
    packed = [part.with_columns(pl.col(pl.String).cast(pl.Categorical)) for part in parts]
    return sorted(_grouped(pl.concat(packed)), key=_name) if packed else []


def _name(signal: Signal) -> tuple[str, str, str, str]:
    return signal.source, signal.role, signal.service, signal.subject


_KEYS = ("source", "role", "service", "subject", "part")


def _grouped(rows: pl.DataFrame) -> Iterator[Signal]:
    """Signals of the rows, whose points are in the order of time.

    Figures that share a time have an order too, so that sums are the same each time. Sorted once and
    cut: there may be thousands of groups of a few points.
    """
    codes = [f"{key}_code" for key in _KEYS]
    numbers = [
        pl.col(key).to_physical().alias(code) for key, code in zip(_KEYS, codes, strict=True)
    ]
    ordered = rows.with_columns(numbers).sort(*codes, "ts_ns", "num", "den")
    runs = ordered.select(pl.struct(codes).rle_id()).to_series().to_numpy()
    starts = np.flatnonzero(np.diff(runs, prepend=-1))
    names = ordered[starts].select(pl.col(_KEYS).cast(pl.String)).rows()
    columns = [ordered[name].to_numpy() for name in Points._fields]
    sides: dict[tuple[str, ...], dict[str, Points]] = {}
    for (*name, part), start, end in zip(names, starts, [*starts[1:], len(runs)], strict=True):
        points = Points(*(column[start:end] for column in columns))
        sides.setdefault(tuple(name), {})[part] = points
    for (source, role, service, subject), side in sides.items():
        incident, baseline = side.get("incident", EMPTY), side.get("baseline", EMPTY)
        yield Signal(source, role, service, subject, incident, baseline)
