"""Links to dashboards and traces, from the table [links] of bundle.toml.

`dashboard = "https://grafana.example/d/llm?from={start_ms}&to={end_ms}"`: the names in braces are
filled in. Only https and http are let through, since a bundle is not to be trusted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from rca.answer import Answer
from rca.plain import printable

PREFIX = "link."
_SAFE = "%/:?=&#@!$'*+,;~[]-._"
_MARGIN_MS = 300_000


@dataclass(frozen=True)
class Link:
    """A name to show and an address that is safe in an attribute once it is escaped."""

    name: str
    url: str


def links_of(answer: Answer) -> list[Link]:
    """The links of a case, names filled in; what is no web address is left out."""
    found = []
    for key, text in sorted(answer.provenance.items()):
        if key.startswith(PREFIX):
            url = _filled(text, answer)
            if url:
                found.append(Link(printable(key.removeprefix(PREFIX), 80), url))
    return found


def _filled(text: str, answer: Answer) -> str | None:
    window = answer.window
    start, end = window.start_ns, window.end_ns
    known = {
        "service": quote(answer.provenance.get("service", ""), safe=""),
        "start_ms": "" if start is None else str(start // 1_000_000 - _MARGIN_MS),
        "end_ms": "" if end is None else str(end // 1_000_000 + _MARGIN_MS),
        "start_us": "" if start is None else str(start // 1_000),
        "end_us": "" if end is None else str(end // 1_000),
    }
    url = re.sub(r"\{(\w+)\}", lambda m: known.get(m[1], m[0]), text)
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        return None
    return quote(url, safe=_SAFE)
