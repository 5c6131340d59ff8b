"""One side of a comparison: a case, or recordings read into one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from rca import sampling
from rca.case import Case, sql_files
from rca.compare.estimates import Completed, Values
from rca.errors import RcaError
from rca.ingest import Progress
from rca.plain import printable

_CASE_HEADER = b"DUCK"


class Group(NamedTuple):
    """Requests of one attribute's value, for example of a release or of an experiment's arm."""

    key: str
    value: str

    @classmethod
    def parse(cls, text: str) -> Group:
        """A group from KEY=VALUE.

        Raises:
            RcaError: Not of that form.
        """
        key, equals, value = text.partition("=")
        if not (key and equals):
            hint = "write for example service.version=1.4"
            raise RcaError(f"{printable(text, 80)!r} is no KEY=VALUE", hint=hint)
        return cls(key, value)


@dataclass(frozen=True)
class Side:
    """What a side recorded.

    Attributes:
        path: As the user gave it.
        group: Attribute that its requests carry, None for all of them.
        requests: start_ns, end_ns, e2e_ns, ttft_ns, itl_ns, input_tokens, output_tokens, failed.
        ops: kind, name, shape, n, total_ns of kernels and operators.
        gpu: state and share of the devices' time.
        damaged: Traces of which something was lost, in words.
        unread: Files that could not be read, in words.
        sampled: How the traces are known to be a sample, None when they are not.
    """

    path: str
    group: Group | None
    requests: pl.DataFrame
    ops: pl.DataFrame
    gpu: pl.DataFrame
    damaged: tuple[str, ...]
    unread: tuple[str, ...]
    sampled: str | None

    @property
    def failed(self) -> int:
        """Requests that failed."""
        return int(self.requests["failed"].sum())

    def latency(self, column: str) -> Values:
        """Values of a column in ms over answered requests, in the order of their arrival."""
        ns = self.requests.filter(~pl.col("failed"))[column].drop_nulls()
        return ns.to_numpy().astype(np.float64) / 1e6

    def tokens(self, column: str) -> Values:
        """Tokens of answered requests, where recorded."""
        found = self.requests.filter(~pl.col("failed"))[column].drop_nulls()
        return found.to_numpy().astype(np.float64)

    def completed(self, amount: str | None = None) -> Completed | None:
        """What was answered, when: requests, or the sum of a column; None without any."""
        answered = self.requests.filter(~pl.col("failed"))
        if amount:
            answered = answered.filter(pl.col(amount).is_not_null())
        if answered.is_empty():
            return None
        ends: npt.NDArray[np.int64] = answered["end_ns"].to_numpy()
        each = answered[amount].to_numpy() if amount else np.ones(len(ends))
        starts = self.requests["start_ns"].to_numpy()
        last = self.requests["end_ns"].to_numpy()
        return Completed(ends, each.astype(np.float64), int(starts.min()), int(last.max()))

    def facts(self) -> dict[str, Any]:
        """What JSON says of the side."""
        return {
            "path": self.path,
            "group": f"{self.group.key}={self.group.value}" if self.group else None,
            "requests": len(self.requests),
            "failed": self.failed,
            "damaged": list(self.damaged),
            "unread": list(self.unread),
            "sampled": self.sampled,
        }


def load(path: Path, group: Group | None = None, progress: Progress | None = None) -> Side:
    """A side from a case file, or from the folder, archive or file of a bundle.

    Of recordings that have both, the incident's are taken.

    Raises:
        RcaError: It is neither, or nothing in it can be read.
    """
    if _is_case(path):
        with Case.open(path, read_only=True) as case:
            return _side(case, str(path), group)
    from rca import pipeline

    with pipeline.read([path], progress=progress) as case:
        if not case.scalar("SELECT count(*) FROM source WHERE part = 'incident'"):
            # A folder called 'baseline' given by itself: it is the side, not its reference.
            case.execute("UPDATE source SET part = 'incident'")
        return _side(case, str(path), group)


def _is_case(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return path.suffix == ".duckdb" or file.read(12)[8:] == _CASE_HEADER


def _side(case: Case, path: str, group: Group | None) -> Side:
    incident = case.scalar("SELECT count(*) FROM source WHERE part = 'incident'")
    part = "incident" if incident else "baseline"
    texts = dict(sql_files("compare"))
    requests = case.sql(texts["10_requests.sql"], [part])
    ops, gpu = (case.sql(texts[name], [part]) for name in ("20_ops.sql", "30_gpu.sql"))
    if group:
        told = case.sql(texts["15_group.sql"], [*_pointers(group.key), group.value])
        requests = requests.join(told, on=["source_id", "trace_id"], how="semi")
        ops, gpu = ops.clear(), gpu.clear()  # a profile does not say whose requests it shows
    return Side(
        path,
        group,
        requests,
        ops,
        gpu,
        tuple(_damaged(case, part)),
        tuple(_unread(case)),
        sampling.told(case),
    )


def _pointers(key: str) -> tuple[str, str]:
    """JSON pointers to an attribute of a span and of its resource."""
    escaped = key.replace("~", "~0").replace("/", "~1")
    return f"/{escaped}", f"/resource.{escaped}"


def _damaged(case: Case, part: str) -> list[str]:
    """Traces that lost something: the requests that are gone may be the slow ones."""
    rows = case.rows(
        "SELECT path, status, coalesce(note, '') FROM source "
        "WHERE part = ? AND kind = 'trace' AND status IN ('salvaged', 'failed') ORDER BY id",
        [part],
    )
    return [f"{Path(path).name} was {status}: {note}" for path, status, note in rows]


def _unread(case: Case) -> list[str]:
    rows = case.rows(
        "SELECT coalesce(example, ''), message FROM ingest_note "
        "WHERE code IN ('unreadable', 'refused') ORDER BY ALL"
    )
    return [f"{Path(path).name} was not read: {message}" for path, message in rows]
