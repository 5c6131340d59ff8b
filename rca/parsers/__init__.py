"""Parsers: one module for a format, each with one `FORMAT`; asked in the order given here.

Other packages add theirs by entry points of the group `rca.parsers`, each the name of a module
with a `FORMAT`; they are asked first, in the order of their names.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points

from rca.errors import ParseError
from rca.parsers.format import Format, Head, Sink
from rca.parsers.lookalikes import explain

__all__ = ["GROUP", "Format", "Head", "Sink", "formats", "recognise"]

GROUP = "rca.parsers"
"""Group of entry points by which other packages add parsers."""


# Most specific first. A module is imported when a file is asked about that none before it knows.
_MODULES = (
    "torch_profiler",
    "nsys_sqlite",
    "nsys_report",
    "jaeger",
    "jaeger_es",
    "zipkin",
    "otel_console",
    "otlp_proto",
    "otlp_proto_metrics",
    "otlp_proto_logs",
    "otlp",
    "otlp_metrics",
    "otlp_logs",
    "tsdb_block",
    "nvidia_smi",
    "locust_csv",
    "perf_analyzer",
    "ncu_csv",
    "bench_serve",
    "alertmanager",
    "k8s_events",
    "k8s_revisions",
    "argocd",
    "changes",
    "json_log",
    "prometheus_json",
    "victoriametrics",
    "grafana_csv",
    "promtool_dump",
    "prometheus_text",
    "engine_log",
    "triton_config",
    "config_text",
    "config_yaml",
)


def formats() -> tuple[Format, ...]:
    """All formats, most specific first."""
    return tuple(_one_by_one())


def _one_by_one() -> Iterator[Format]:
    yield from added()
    for name in _MODULES:
        yield import_module(f"rca.parsers.{name}").FORMAT


@cache
def added() -> list[Format]:
    """Formats of other packages, looked up once.

    Raises:
        ParseError: An entry point does not lead to a `FORMAT`.
    """
    found = []
    for point in sorted(entry_points(group=GROUP), key=lambda p: p.name):
        try:
            known = point.load().FORMAT
        except (ImportError, AttributeError) as error:
            raise ParseError(
                f"the parser {point.name} ({point.value}) cannot be loaded: {error}",
                hint="mend or remove the package that brings it",
            ) from error
        found.append(known)
    return found


def recognise(head: Head) -> Format:
    """The format of a file, by its content.

    Raises:
        ParseError: No format knows it; the message says what it looks like instead.
    """
    for known in _one_by_one():
        if known.recognise(head):
            return known
    reason = explain(head)
    raise ParseError(reason.problem, path=str(head.path), hint=reason.hint)
