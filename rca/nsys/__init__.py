"""Nsight Systems' own program: exports reports, runs recipes. Its exit code is never trusted."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from rca import programs, scratch
from rca.errors import NsysError

VARIABLE = "RCA_NSYS"
TIMEOUT_S = 900.0
REPORT_MAGIC = b"NVIDIA Tegra Profiler Report "
_EXPORT_HINT = "export it where it was recorded: nsys export --type sqlite {}"
_INSTALL_HINT = f"install Nsight Systems or name it in {VARIABLE}, or e{_EXPORT_HINT[1:]}"
_NEWER = re.compile(r"created in Nsight Systems version \(([\w.]+)[^)]*\), newer")
_TELLING = re.compile(
    r"error|exception|fail|not supported|newer|invalid|cannot|no such", re.IGNORECASE
)


def find(nsys: str | Path | None = None) -> Path:
    """The nsys program: the argument, else RCA_NSYS, else what PATH has.

    Raises:
        NsysError: There is none, or what was named is no program.
    """
    named = nsys or os.environ.get(VARIABLE)
    found = shutil.which(str(named or "nsys"))
    if found:
        return Path(found).absolute()
    if named:
        raise NsysError(
            "is not a program", path=str(named), hint="give the path of nsys itself"
        )
    raise NsysError("the nsys program is not here", hint=_INSTALL_HINT.format("FILE"))


def version(nsys: str | Path | None = None) -> str:
    """Version of the program, for example '2023.4.4.54'.

    Raises:
        NsysError: There is no program, or it does not say.
    """
    program = find(nsys)
    with scratch.folder() as folder:
        said = run([str(program), "--version"], folder, timeout_s=60)
    found = re.search(r"version (\d[\d.]*\d)", said)
    if not found:
        raise NsysError("does not say its version", path=str(program))
    return found[1]


@contextmanager
def exported(
    report: Path, nsys: str | Path | None = None, *, timeout_s: float = TIMEOUT_S
) -> Iterator[Path]:
    """The SQLite export of a .nsys-rep or .qdrep file, in a folder that is removed afterwards.

    Raises:
        NsysError: There is no program, it is older than the report, or it made no export.
    """
    hint = _EXPORT_HINT.format(report.name)
    try:
        program = find(nsys)
    except NsysError as error:
        raise NsysError(
            "needs the nsys program, which is not here",
            path=str(report),
            hint=_INSTALL_HINT.format(report.name),
        ) from error
    with scratch.folder() as work:
        output = work / "export.sqlite"
        command = [str(program), "export", "--type", "sqlite", "--force-overwrite", "true"]
        command += ["--output", str(output), str(linked(report, work))]
        said = run(command, work, timeout_s=timeout_s)
        if not output.is_file() or not output.stat().st_size:
            raise NsysError(reason(said, program), path=str(report), hint=hint)
        yield output


def made(folder: Path) -> Path:
    """The folder, made when missing."""
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def linked(report: Path, folder: Path, stem: str = "report") -> Path:
    """A link to the report: nsys writes beside its input, which may not be ours to write into."""
    suffix = ".qdrep" if report.suffix == ".qdrep" else ".nsys-rep"
    link = made(folder) / f"{stem}{suffix}"
    link.symlink_to(report.absolute())
    return link


def run(
    command: Sequence[str],
    folder: Path,
    *,
    timeout_s: float,
    environment: Mapping[str, str] | None = None,
) -> str:
    """What the program said. It runs in a folder of its own, because it executes Python files it finds."""
    try:
        ended = programs.run(
            command, folder, timeout_s=timeout_s, more=environment, err=subprocess.STDOUT
        )
    except subprocess.TimeoutExpired as error:
        raise NsysError(
            f"nsys did not end within {timeout_s:.0f} s", hint="try it by hand"
        ) from error
    return ended.out.decode("utf-8", "replace")


def reason(said: str, program: Path) -> str:
    """Why nsys gave no output, in one line."""
    if newer := _NEWER.search(said):
        return f"was recorded by Nsight Systems {newer[1]}, which is newer than {program}"
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    telling = [line for line in lines if _TELLING.search(line)] or lines[-1:]
    return (
        f"nsys made nothing of it: {telling[0][:300]}" if telling else "nsys made nothing of it"
    )
