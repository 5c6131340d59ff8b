"""List the licences of everything that `pip install` brings; writes docs/licences.md.

    python scripts/licences.py           write the document
    python scripts/licences.py --check   exit 1 when a licence is not known to be compatible

Packages and versions are those of constraints.txt; what their metadata says is looked up where they
are installed. `rca` itself is Apache-2.0 and ships none of them.
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
TARGET = ROOT / "docs" / "licences.md"
_CLASSIFIER = "License :: OSI Approved :: "
# Licences under which a package may be used beside Apache-2.0 code, as their names are written.
_FREE = re.compile(
    r"apache|\bmit\b|bsd|\bisc\b|psf|python software|mpl|mozilla|0bsd|unlicense|zlib|cc0|\bepl\b|boost"
    r"|hpnd|universal permissive",
    re.IGNORECASE,
)
INTRO = """# Licences of what is installed with it

Made by `python scripts/licences.py` from the metadata of the packages in constraints.txt; do not edit. rca is
Apache-2.0. Its wheel holds only its own code, and in report.html the drawing libraries that vl-convert-python
carries (Vega, BSD 3-Clause). All packages are installed by pip and imported, none is copied or changed.

"""


class Licence(NamedTuple):
    """A package of constraints.txt and what its metadata says."""

    name: str
    version: str
    says: str


def licence_of(name: str, version: str) -> Licence:
    """The licence as metadata tells: the expression, else the classifiers, else the old field."""
    try:
        told = distribution(name).metadata
    except PackageNotFoundError:
        return Licence(name, version, "not installed here")
    classifiers = [
        c.removeprefix(_CLASSIFIER)
        for c in told.get_all("Classifier") or []
        if c.startswith(_CLASSIFIER)
    ]
    field = next(iter((told.get("License") or "").splitlines()), "")
    says = told.get("License-Expression") or ", ".join(classifiers) or field or "not said"
    return Licence(name, version, says[:80])


def licences() -> list[Licence]:
    """All packages of constraints.txt, in their order."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = [line.partition("==") for line in lines if "==" in line]
    return [licence_of(name.strip(), version.strip()) for name, _, version in pinned]


def main(arguments: list[str]) -> int:
    """Write, or check."""
    found = licences()
    if "--check" in arguments:
        unclear = [
            f for f in found if f.says != "not installed here" and not _FREE.search(f.says)
        ]
        for one in unclear:
            print(f"{one.name}: {one.says}", file=sys.stderr)
        return 1 if unclear else 0
    rows = "".join(f"| {f.name} | {f.version} | {f.says} |\n" for f in found)
    text = INTRO + "| Package | Version | Licence |\n|---|---|---|\n" + rows
    TARGET.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
