"""Record the torch workload of a sample with Nsight Systems, as a small SQLite export.

    python scripts/sample_nsys.py CAUSE SEED FOLDER AT_NS

Needs nsys (PATH or RCA_NSYS) and the package nvtx <= 0.2.11; later ones record no ranges with nsys of
2023. No GPU is needed: NVTX ranges of the engine's steps and long calls of the operating system are
what is recorded. The export is cut to the steps and to this process, loses what tells of the
machine, and its session is moved to AT_NS, the time of the bundle.
"""

from __future__ import annotations

import importlib.util
import os
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from rca import nsys
from rca.errors import RcaError

LARGEST_BYTES = 1_000_000
_STEP = "engine_step"
_WORKLOAD = Path(__file__).resolve().with_name("nsys_workload.py")
_TIMEOUT_S = 300.0
_KEPT = {  # table: which of its rows
    "NVTX_EVENTS": "t.start >= :first AND t.start <= :last",
    "OSRT_API": "t.start >= :first AND t.start <= :last AND t.eventClass = 27",
    "ThreadNames": "(t.globalTid >> 24) & 0xFFFFFF = :pid",
    "META_DATA_EXPORT": "t.name LIKE 'EXPORT_%VERSION%'",
    "TARGET_INFO_SESSION_START_TIME": "true",
}


def available() -> str | None:
    """Why nothing can be recorded here; None when it can."""
    try:
        nsys.find()
    except RcaError as error:
        return str(error)
    return None if importlib.util.find_spec("nvtx") else "there is no package nvtx"


def record(cause: str, seed: int, folder: Path, at_ns: int) -> Path:
    """Profile the faulty service's steps; returns the .sqlite file written to `folder`.

    Raises:
        RcaError: nsys made no report, or its export has no steps.
    """
    with tempfile.TemporaryDirectory(prefix="rca-sample-") as scratch:
        report = Path(scratch) / "steps.nsys-rep"
        command = [
            str(nsys.find()), "profile", "-t", "nvtx,osrt", "--osrt-threshold=1000000", "-s", "none",
            "--cpuctxsw=none", "-o", str(report), sys.executable, str(_WORKLOAD), _STEP, cause, str(seed),
        ]  # fmt: skip
        paths = [str(_WORKLOAD.parent.parent), os.environ.get("PYTHONPATH", "")]
        environment = {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
        said = nsys.run(command, Path(scratch), timeout_s=_TIMEOUT_S, environment=environment)
        if not report.is_file():
            raise RcaError(nsys.reason(said, nsys.find()), path=str(report))
        with nsys.exported(report) as export:
            path = folder / f"llm-engine-0.{at_ns}.sqlite"
            _trim(export, path, at_ns)
    return path


def _trim(export: Path, path: Path, at_ns: int) -> None:
    """Copy what belongs to the steps, without the machine's names and paths."""
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as db:
        db.execute("ATTACH ? AS raw", [str(export)])
        first, last, thread = db.execute(
            "SELECT min(start), max(end), max(globalTid) FROM raw.NVTX_EVENTS"
            " WHERE coalesce(text, (SELECT value FROM raw.StringIds WHERE id = textId)) = ?", [_STEP],
        ).fetchone()  # fmt: skip
        if first is None:
            raise RcaError("has no NVTX ranges; is nvtx <= 0.2.11 installed?", path=str(export))
        bound = {"first": first, "last": last, "pid": (thread >> 24) & 0xFFFFFF}
        there = {t for (t,) in db.execute("SELECT name FROM raw.sqlite_master")}
        for table in _KEPT.keys() & there:
            rows = f"SELECT t.* FROM raw.{table} AS t WHERE {_KEPT[table]}"
            db.execute(f"CREATE TABLE {table} AS {rows}", bound)
        db.execute(
            "CREATE TABLE StringIds AS SELECT * FROM raw.StringIds WHERE id IN"
            " (SELECT nameId FROM OSRT_API UNION SELECT nameId FROM ThreadNames"
            " UNION SELECT textId FROM NVTX_EVENTS)"
        )
        db.execute(
            "CREATE TABLE PROCESSES AS SELECT ? AS pid, 'python' AS name", [bound["pid"]]
        )
        db.execute(
            "UPDATE TARGET_INFO_SESSION_START_TIME SET utcEpochNs = ?, utcTime = NULL, localTime = NULL",
            [at_ns - first],
        )
        db.commit()
        db.execute("DETACH raw")
        db.execute("VACUUM")


if __name__ == "__main__":
    print(record(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])))
