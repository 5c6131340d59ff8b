"""A block of Prometheus' TSDB, read by running promtool where it is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from rca import programs, scratch
from rca.errors import ParseError
from rca.parsers.format import Format, Head, Sink
from rca.parsers.json_text import mapping, sketch
from rca.parsers.prometheus_text import read_text

_TIMEOUT_S = 600
_ULID = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}")


def _read(path: Path, sink: Sink) -> None:
    block = path.parent
    if not (block / "index").is_file() or not (block / "chunks").is_dir():
        raise ParseError(
            "is the description of a TSDB block whose index and chunks are not beside it",
            path=str(path),
            hint="give the whole block folder",
        )
    program = shutil.which("promtool")
    if program is None:
        raise ParseError(
            "is a TSDB block, which promtool reads, and promtool is not installed",
            path=str(path),
            hint="run where it is: promtool tsdb dump DATA_FOLDER > dump.txt, and give dump.txt",
        )
    with scratch.folder() as folder:
        dump = folder / "dump.txt"
        _dump(program, block, folder / "data", dump, path)
        read_text(dump, sink)
    sink.describe(producer="Prometheus")
    sink.note(
        "info",
        "dump_limits",
        "promtool prints stale markers as NaN and leaves native histograms out",
    )


def _dump(program: str, block: Path, data: Path, dump: Path, path: Path) -> None:
    """Run promtool on a folder made as it wants one: the block, and a wal/ even if empty."""
    name = block.name if _ULID.fullmatch(block.name) else "0" * 26
    (data / "wal").mkdir(parents=True)
    shutil.copytree(block, data / name)
    command = [program, "tsdb", "dump", str(data)]
    try:
        with dump.open("wb") as out:
            ended = programs.run(command, data, timeout_s=_TIMEOUT_S, out=out)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ParseError(f"promtool did not run: {error}", path=str(path)) from error
    if ended.code:
        said = ended.err.decode("utf-8", "replace").strip().splitlines() or ["no message"]
        raise ParseError(f"promtool cannot read it: {said[-1][:200]}", path=str(path))


def _recognise(head: Head) -> bool:
    meta = mapping(sketch(head).value)
    return {"ulid", "minTime", "maxTime", "compaction"} <= set(meta)


FORMAT = Format("tsdb_block", "metrics", _recognise, _read)
