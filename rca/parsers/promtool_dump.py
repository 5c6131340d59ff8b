"""What `promtool tsdb dump` prints: every sample of a TSDB, one a line."""

from __future__ import annotations

import re
from pathlib import Path

from rca.parsers.format import Format, Head, Sink
from rca.parsers.prometheus_text import read_text
from rca.parsers.text_lines import full_lines

_LINE = re.compile(r"\{.*\} [-+0-9.eEInfNa]+ \d+$").match


def _read(path: Path, sink: Sink) -> None:
    read_text(path, sink)
    sink.note(
        "info",
        "dump_limits",
        "promtool prints stale markers as NaN and leaves native histograms out",
    )


def _recognise(head: Head) -> bool:
    lines = [line for line in full_lines(head) if line.strip()][:50]
    return bool(lines) and all(_LINE(line) and '__name__="' in line for line in lines)


FORMAT = Format("promtool_dump", "metrics", _recognise, _read)
