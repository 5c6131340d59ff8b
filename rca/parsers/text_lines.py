"""Lines of text in the head of a file."""

from __future__ import annotations

from rca.parsers.format import Head
from rca.parsers.stream import HEAD_BYTES


def full_lines(head: Head) -> list[str]:
    """The lines that the head holds wholly; empty when it is no text."""
    if b"\0" in head.data:
        return []
    lines = head.data.decode("utf-8-sig", "replace").splitlines()
    if len(head.data) >= HEAD_BYTES and len(lines) > 1:
        lines.pop()  # it may be cut
    return lines
