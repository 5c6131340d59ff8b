"""The latency limit in the words of an objective."""

from __future__ import annotations

import re

_OBJECTIVES = (  # `e2e p99 < 2 s` and `e2e_p99_ms 2000`
    r"(?:e2e|end.to.end|latency)\D*?(?:p\d+)?\s*(?:<=|[<≤]|under|below)\s*(?P<value>[0-9.]+)\s*(?P<unit>ms|s)\b",
    r"(?:e2e|latency)\w*_(?P<unit>ms|s|seconds)\s+(?P<value>[0-9.]+)",
)
_UNIT_NS = {"ms": 1_000_000, "s": 1_000_000_000, "seconds": 1_000_000_000}


def objective_ns(slo: str | None) -> int | None:
    """The latency limit in an objective such as `e2e p99 < 2 s`; None when it has none."""
    for pattern in _OBJECTIVES:
        found = re.search(pattern, slo or "", re.IGNORECASE)
        if found:
            return round(float(found["value"]) * _UNIT_NS[found["unit"].lower()])
    return None
