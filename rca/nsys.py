"""Nsight Systems' own program: exports reports, runs recipes. Its exit code is never trusted."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

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
    with tempfile.TemporaryDirectory(prefix="rca-nsys-") as folder:
        said = _run([str(program), "--version"], Path(folder), timeout_s=60)
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
    with tempfile.TemporaryDirectory(prefix="rca-nsys-") as folder:
        work = Path(folder)
        output = work / "export.sqlite"
        command = [str(program), "export", "--type", "sqlite", "--force-overwrite", "true"]
        command += ["--output", str(output), str(_linked(report, work))]
        said = _run(command, work, timeout_s=timeout_s)
        if not output.is_file() or not output.stat().st_size:
            raise NsysError(_reason(said, program), path=str(report), hint=hint)
        yield output


def run_recipe(
    name: str,
    reports: Sequence[Path],
    out_dir: Path,
    *,
    nsys: str | Path | None = None,
    python: Path | None = None,
    arguments: Sequence[str] = (),
    timeout_s: float = TIMEOUT_S,
) -> list[Path]:
    """Run a recipe of nsys over reports; returns the files it wrote, moved to `out_dir`.

    Args:
        name: Name of the recipe, for example 'cuda_gpu_kern_sum'.
        reports: .nsys-rep or .qdrep files; recipes do not read SQLite.
        out_dir: Where results go; made when missing. Files of the same name are replaced.
        nsys: The program, see `find`.
        python: A Python that has what recipes need (numpy, pandas, pyarrow); PATH decides without.
        arguments: Further arguments of the recipe.
        timeout_s: Seconds after which it is ended.

    Raises:
        NsysError: The name is none, a report is none, or no result was written.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise NsysError(f"{name!r} is no name of a recipe", hint="see: nsys recipe --help")
    for report in reports:
        _check_report(report)
    program = find(nsys)
    with tempfile.TemporaryDirectory(prefix="rca-nsys-") as folder:
        work = Path(folder)
        linked = [_linked(r, work / "reports", _stem(i, r)) for i, r in enumerate(reports)]
        source = linked[0] if len(linked) == 1 else work / "reports"
        command = [str(program), "recipe", name, "--input", str(source), *arguments]
        said = ""
        for extra in (
            ["--csv"],
            [],
        ):  # not every recipe knows --csv, and none says so by its exit code
            output = _made(work / f"out{len(extra)}") / name
            said = _run(
                [*command, *extra, "--output", str(output)], _made(work / "cwd"),
                timeout_s=timeout_s, environment=_with_python(python),
            )  # fmt: skip
            results = [p for p in output.rglob("*") if p.suffix in (".parquet", ".csv")]
            if results:
                return _moved(output, out_dir)
        raise NsysError(
            f"recipe {name} gave no result: {_reason(said, program)}",
            path=str(reports[0]),
            hint="see: rca doctor" if "No module named" in said else None,
        )


def _check_report(report: Path) -> None:
    try:
        with report.open("rb") as file:
            magic = file.read(len(REPORT_MAGIC))
    except OSError as error:
        raise NsysError(f"cannot be read: {error.strerror}", path=str(report)) from error
    if magic != REPORT_MAGIC:
        raise NsysError("is no report of Nsight Systems (.nsys-rep, .qdrep)", path=str(report))


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _linked(report: Path, folder: Path, stem: str = "report") -> Path:
    """A link to the report: nsys writes beside its input, which may not be ours to write into."""
    suffix = ".qdrep" if report.suffix == ".qdrep" else ".nsys-rep"
    link = _made(folder) / f"{stem}{suffix}"
    link.symlink_to(report.absolute())
    return link


def _stem(number: int, report: Path) -> str:
    """A name that results can show: the report's own, told apart from others of the same name."""
    return f"{number:03d}_{re.sub(r'[^A-Za-z0-9._-]', '_', report.stem)}"


def _with_python(python: Path | None) -> dict[str, str]:
    folder = str(python.parent) if python else ""
    return {"PATH": os.pathsep.join(p for p in (folder, os.environ.get("PATH", "")) if p)}


def _run(
    command: Sequence[str],
    folder: Path,
    *,
    timeout_s: float,
    environment: Mapping[str, str] | None = None,
) -> str:
    """What the program said. It runs in a folder of its own, because it executes Python files it finds."""
    process = subprocess.Popen(  # noqa: S603 - the program is the one that the user named
        command, cwd=folder, env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        start_new_session=True,
    )  # fmt: skip
    try:
        said, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired as error:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise NsysError(
            f"nsys did not end within {timeout_s:.0f} s", hint="try it by hand"
        ) from error
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise
    return said.decode("utf-8", "replace")


def _reason(said: str, program: Path) -> str:
    """Why there is no output, in one line."""
    if newer := _NEWER.search(said):
        return f"was recorded by Nsight Systems {newer[1]}, which is newer than {program}"
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    telling = [line for line in lines if _TELLING.search(line)] or lines[-1:]
    return (
        f"nsys made nothing of it: {telling[0][:300]}" if telling else "nsys made nothing of it"
    )


def _moved(output: Path, out_dir: Path) -> list[Path]:
    moved = []
    for path in sorted(p for p in output.rglob("*") if p.is_file() and not p.is_symlink()):
        target = out_dir / path.relative_to(output)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(path, target)
        moved.append(target)
    return moved
