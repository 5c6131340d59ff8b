"""Parsers: one module for a format, each with one `FORMAT`; asked in the order given here."""

from __future__ import annotations

from rca.errors import ParseError
from rca.parsers.format import Format, Head, Sink

__all__ = ["Format", "Head", "Sink", "formats", "recognise"]


def formats() -> tuple[Format, ...]:
    """All formats, most specific first."""
    return ()


def recognise(head: Head) -> Format:
    """The format of a file, by its content.

    Raises:
        ParseError: No format knows it; the message says what it looks like instead.
    """
    for known in formats():
        if known.recognise(head):
            return known
    raise ParseError(
        "no known recording in it", path=str(head.path), hint="see docs/formats.md for what is read"
    )
