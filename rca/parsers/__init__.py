"""Parsers: one module for a format, each with one `FORMAT`; asked in the order given here."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from rca.errors import ParseError
from rca.parsers.format import Format, Head, Sink

__all__ = ["Format", "Head", "Sink", "formats", "recognise"]


# Most specific first. Modules are imported when the first file is read, not before.
_MODULES = (
    "torch_profiler",
    "jaeger",
    "jaeger_es",
    "zipkin",
    "otel_console",
    "otlp_proto",
    "otlp",
    "prometheus_json",
    "changes",
    "prometheus_text",
    "config_text",
    "config_yaml",
)


@cache
def formats() -> tuple[Format, ...]:
    """All formats, most specific first."""
    return tuple(import_module(f"rca.parsers.{name}").FORMAT for name in _MODULES)


def recognise(head: Head) -> Format:
    """The format of a file, by its content.

    Raises:
        ParseError: No format knows it; the message says what it looks like instead.
    """
    for known in formats():
        if known.recognise(head):
            return known
    raise ParseError(
        "no known recording in it",
        path=str(head.path),
        hint="see docs/formats.md for what is read",
    )
