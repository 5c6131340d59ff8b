"""The files of a bundle: found in folders, archives and lists, sorted into incident and baseline."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from rca.archive import DEFAULT_MAX_UNPACKED, is_archive, unpack
from rca.errors import BundleError

PARTS = ("incident", "baseline")
_NEVER_READ = {"truth.toml", "bundle.toml"}
_SETTINGS: dict[str, tuple[str, ...]] = {
    "title": (), "service": (), "incident": ("start", "end"), "slo": (), "links": (),
}  # fmt: skip
"""What bundle.toml may hold; of a table the keys that are known, where not every one is."""
_OWN_OUTPUT = {"verdict.json", "postmortem.md", "report.html"}


@dataclass(frozen=True)
class BundleFile:
    """One file to read: where it lies, what it is called for people, and its side."""

    path: Path
    name: str
    part: str


@dataclass(frozen=True)
class Bundle:
    """What was found.

    Attributes:
        files: Files to read, in a stable order.
        settings: Content of bundle.toml, empty without one.
        refused: Files that are not read at all, with the reason.
    """

    files: list[BundleFile]
    settings: dict[str, Any] = field(default_factory=dict)
    refused: list[tuple[str, str]] = field(default_factory=list)


def find(
    paths: Sequence[Path],
    baseline: Path | None,
    workspace: Path,
    max_unpacked: int = DEFAULT_MAX_UNPACKED,
) -> Bundle:
    """The files of the bundle. Archives are unpacked below `workspace`, which the caller removes.

    A folder may hold `incident/` and `baseline/`; what lies in neither belongs to the incident.
    A file given by itself belongs to the baseline when its folder has that name.

    Raises:
        BundleError: A path is missing, or nothing is there to read.
    """
    files: list[BundleFile] = []
    refused: list[tuple[str, str]] = []
    settings: dict[str, Any] = {}
    wanted = [(p, None) for p in paths] + ([(baseline, "baseline")] if baseline else [])
    for path, part in wanted:
        if not path.exists():
            raise BundleError("no such file or folder", path=str(path), hint="check the path")
        for file in walk(path, part):
            if file.path.name == "bundle.toml":
                settings = settings or _read_settings(file.path)
            else:
                inside = opened(file, workspace / str(len(files)), max_unpacked)
                files += inside.files
                refused += inside.refused
    if not files and not refused:
        names = ", ".join(str(p) for p in paths)
        raise BundleError(
            "nothing to read in it", path=names, hint="see docs/formats.md for what is read"
        )
    return Bundle(_without_repeats(files), settings, refused)


def opened(file: BundleFile, workspace: Path, max_unpacked: int) -> Bundle:
    """What an archive holds, unpacked below `workspace`; any other file is itself.

    Raises:
        BundleError: The archive is a bomb, or has too many members.
        OSError: The file cannot be read.
    """
    if not is_archive(file.path):
        return Bundle([file])
    refused: list[tuple[str, str]] = []
    return Bundle(_unpacked(file, workspace, max_unpacked, refused), refused=refused)


def walk(path: Path, part: str | None) -> Iterator[BundleFile]:
    """The file, or those in a folder that are wanted, in the order of their names.

    bundle.toml is among them; archives are not opened.
    """
    if path.is_file():
        side = part or ("baseline" if path.resolve().parent.name == "baseline" else "incident")
        yield BundleFile(path, _text(path), side)
        return
    for found in sorted(path.rglob("*")):
        inner = found.relative_to(path).parts
        if _is_wanted(found, inner) and not _leaves(found, path):
            side = part or next((p for p in inner[:-1] if p in PARTS), None) or _side_of(path)
            yield BundleFile(found, _text(found), side)


def _leaves(found: Path, folder: Path) -> bool:
    """Whether a link in a folder leads out of it: what a bundle names is not for it to read."""
    return not found.resolve().is_relative_to(folder.resolve())


def _text(path: Path) -> str:
    r"""The path for people and for tables; bytes that are no UTF-8 are written `\xff`."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _side_of(folder: Path) -> str:
    return "baseline" if folder.resolve().name == "baseline" else "incident"


def _is_wanted(path: Path, inner: tuple[str, ...]) -> bool:
    hidden = any(p.startswith((".", "__MACOSX")) for p in inner)
    own = path.name in _OWN_OUTPUT or path.suffix in {".duckdb", ".wal"}
    return (
        path.is_file()
        and not hidden
        and not own
        and (path.name not in _NEVER_READ or path.name == "bundle.toml")
    )


def unknown_settings(settings: dict[str, Any]) -> list[str]:
    """One line for each key of bundle.toml that nothing reads, with the nearest that is read."""
    told = [_unknown(name, name, _SETTINGS) for name in settings if name not in _SETTINGS]
    for table, known in _SETTINGS.items():
        inner = settings.get(table)
        if known and isinstance(inner, dict):
            told += [_unknown(f"{table}.{k}", k, known) for k in inner if k not in known]
    return told


def _unknown(where: str, name: str, known: Collection[str]) -> str:
    near = get_close_matches(name, known, 1)
    hint = f"is it {near[0]}?" if near else f"known are {', '.join(known)}"
    return f"{where} is not read: {hint}"


def _unpacked(
    file: BundleFile, target: Path, max_unpacked: int, refused: list[tuple[str, str]]
) -> list[BundleFile]:
    members = []
    for name, path in unpack(file.path, target, max_unpacked, refused):
        inner = Path(name).parts
        side = next((p for p in inner[:-1] if p in PARTS), file.part)
        if _is_wanted(path, inner) and path.name not in _NEVER_READ:
            members.append(BundleFile(path, f"{file.name}!{name}", side))
    return members


def _read_settings(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BundleError(f"is not valid TOML: {error}", path=str(path)) from error


def _without_repeats(files: list[BundleFile]) -> list[BundleFile]:
    seen: dict[tuple[Path, str], BundleFile] = {}
    for file in files:
        seen.setdefault((file.path.resolve(), file.part), file)
    explicit = {p for p, part in seen if part == "baseline"}
    return [f for (p, part), f in seen.items() if part == "baseline" or p not in explicit]
