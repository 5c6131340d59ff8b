"""Names masked before they leave the machine, and restored in what comes back.

No string of a bundle is ever sent. Each becomes a placeholder that tells its kind and nothing
else; the table of placeholders stays in the case.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from rca.plain import printable

_SECRET = re.compile(
    r"-----BEGIN|\b(?:sk|pk|rk|ghp|gho|ghs|glpat|xox[abprs]|hf|nvapi|npm)[-_][A-Za-z0-9_-]{8,}"
    r"|\bA(?:KIA|SIA)[A-Z0-9]{16}\b|\bAIza[\w-]{20,}|\beyJ[\w-]+\.[\w-]+\.[\w-]*"
    r"|(?i:bearer|basic)\s+[A-Za-z0-9+/=._-]{8,}|://[^/\s:@]+:[^/\s@]+@"
    r"|(?i:password|passwd|secret|token|api[_-]?key)\s*[=:]\s*\S+|\b[0-9a-fA-F]{32,}\b"
)
_KINDS = (
    ("secret", _SECRET),
    ("email", re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")),
    ("address", re.compile(
        r"\b(?:\d{1,3}\.){3}\d{1,3}\b|\b[0-9a-fA-F]{1,4}(?::[0-9a-fA-F]{0,4}){3,7}\b"
        r"|\b[0-9a-fA-F]{2}(?:[:-][0-9a-fA-F]{2}){5}\b"
    )),
    ("path", re.compile(r"(?:^|\s)(?:/|[A-Za-z]:\\)[\w.-]+[/\\]")),
    ("host", re.compile(r"\b[a-zA-Z][\w-]*(?:\.[\w-]+){2,}\b|\bip-\d+-\d+-\d+-\d+\b")),
)  # fmt: skip
KINDS = (*(kind for kind, _ in _KINDS), "service", "metric", "change", "workload", "setting",
         "value", "log", "kernel", "alert")  # fmt: skip
_PLACEHOLDER = re.compile(rf"\b(?:{'|'.join(KINDS)})-[1-9][0-9]*\b")


def kind_of(text: str, otherwise: str) -> str:
    """What a string seems to be: a secret, e-mail, address, path or host, else `otherwise`."""
    return next((kind for kind, form in _KINDS if form.search(text)), otherwise)


def leaks(text: str) -> list[str]:
    """Kinds of secrets and addresses that a text still shows; empty for one that may be sent."""
    return [kind for kind, form in _KINDS[:3] if form.search(text)]


class Masker:
    """Placeholders by text, numbered in the order in which texts come."""

    def __init__(self) -> None:
        self._placeholders: dict[str, str] = {}
        self._values: dict[str, str] = {}
        self._counts: dict[str, int] = {}

    def mask(self, kind: str, text: str) -> str:
        """The placeholder of a text; the same text always has the same one."""
        known = self._placeholders.get(text)
        if known is not None:
            return known
        kind = kind_of(text, kind)
        self._counts[kind] = self._counts.get(kind, 0) + 1
        placeholder = f"{kind}-{self._counts[kind]}"
        self._placeholders[text], self._values[placeholder] = placeholder, text
        return placeholder

    def restore(self, text: str) -> str:
        """The text with what its placeholders stand for; unknown placeholders stay."""
        return _PLACEHOLDER.sub(
            lambda m: printable(self._values.get(m.group(), m.group()), 120), text
        )

    def table(self) -> list[dict[str, str]]:
        """All placeholders and what they stand for."""
        return [{"placeholder": k, "value": v} for k, v in self._values.items()]


def without_placeholders(text: str, known: Iterable[str]) -> str:
    """The text with the given placeholders taken out, for checks of what is left."""
    names = set(known)
    return _PLACEHOLDER.sub(lambda m: " " if m.group() in names else m.group(), text)
