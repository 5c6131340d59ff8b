"""What people wrote into a postmortem, kept when it is rendered again.

Parts that only people can fill stand between two comments. The first names the part and holds the
digest of what was rendered; where the text below no longer has that digest, somebody has edited it.
"""

from __future__ import annotations

import hashlib
import re

from rca.postmortem.escape import Markdown

_PART = re.compile(
    r"^<!-- people: (?P<name>[a-z]+) (?P<digest>[0-9a-f]{12}) -->\n(?P<text>.*?)\n<!-- /people -->$",
    re.MULTILINE | re.DOTALL,
)


def part(name: str, text: str) -> Markdown:
    """A part for people, as it stands before they have written anything."""
    body = re.sub(r"\n{3,}", "\n\n", text).strip()
    return Markdown(f"<!-- people: {name} {_digest(body)} -->\n{body}\n<!-- /people -->")


def kept(fresh: str, old: str) -> str:
    """FRESH with each part that was edited in OLD as it stands there.

    Only the first part of a name counts, which is the document's own: whatever a recording put
    into the appendix stands behind it.
    """
    edited: dict[str, str] = {}
    seen = set()
    for found in _PART.finditer(old):
        if found["name"] not in seen and _digest(found["text"]) != found["digest"]:
            edited[found["name"]] = found[0]
        seen.add(found["name"])
    used: set[str] = set()

    def choose(found: re.Match[str]) -> str:
        name = found["name"]
        first = name not in used
        used.add(name)
        return edited.get(name, found[0]) if first else found[0]

    return _PART.sub(choose, fresh)


def _digest(text: str) -> str:
    return hashlib.sha256(text.strip().encode()).hexdigest()[:12]
