"""`rca doctor`: commands around the analysis."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from rca.errors import RcaError

JsonOption = Annotated[
    bool, typer.Option("--json", help="Print what the Python call returns, as JSON.")
]


def doctor(as_json: JsonOption = False) -> None:
    """Say what of nsys, promtool, torch, endpoint, disk and memory is here, and how to get the rest."""
    from rca.doctor import broken_core, examine

    findings = examine()
    if as_json:
        _print_json([f._asdict() for f in findings])
    else:
        for found in findings:
            print(f"{found.status:<8} {found.name:<19} {found.detail}")
            if found.status != "found":
                print(f"{'':<28} for {found.serves}")
            if found.hint:
                print(f"{'':<28} → {found.hint}")
    if broken := broken_core(findings):
        raise RcaError(f"nothing works without: {', '.join(broken)}", hint="see above")


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))
