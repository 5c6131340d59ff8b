"""Recipes: the analyses that come with Nsight Systems, run over reports through its program."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rca import nsys, programs, scratch
from rca.errors import NsysError

VARIABLE = "RCA_RECIPE_PYTHON"
NEEDS = ("numpy", "pandas", "pyarrow", "psutil", "asyncore")
"""What recipes import; asyncore left Python with version 3.12."""
HINT = (
    "make an environment of Python 3.11 or older and give its Python as --python, in "
    f"{VARIABLE}, or first on PATH: python3.11 -m venv ENV && ENV/bin/pip install 'numpy<2' "
    "'pandas<3' pyarrow psutil plotly dask distributed"
)
_ANSWER_S = 30
_NO_DATA = re.compile(r"no data was found|does not contain any .* data that can be projected")


def find_python(python: str | Path | None = None) -> Path:
    """A Python that recipes can run with: the argument, else RCA_RECIPE_PYTHON, else what PATH has.

    Raises:
        NsysError: There is none, it does not run, or it lacks what recipes import.
    """
    wanted = str(python or os.environ.get(VARIABLE) or "python")
    found = shutil.which(wanted)
    if found is None:
        raise NsysError(f"recipes need a Python, and there is no {wanted}", hint=HINT)
    lacking = _lacking(found)
    if lacking is None:
        raise NsysError("does not run, and recipes need a Python", path=found, hint=HINT)
    if lacking:
        raise NsysError(f"lacks {lacking}, which recipes need", path=found, hint=HINT)
    return Path(found).absolute()


def _lacking(python: str) -> str | None:
    """Modules that this Python lacks, '' when it has all, None when it does not run."""
    probe = (
        "import importlib.util as u; "
        f"print('lacks', *[m for m in {NEEDS!r} if not u.find_spec(m)])"
    )
    with scratch.folder() as folder:
        try:
            done = programs.run(
                [python, "-W", "ignore", "-c", probe], folder, timeout_s=_ANSWER_S
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
    found = re.search(r"^lacks(.*)$", done.out.decode("utf-8", "replace"), re.MULTILINE)
    return ", ".join(found[1].split()) if found else None


@dataclass(frozen=True)
class Session:
    """Reports lent to recipes: links in a folder, beside which nsys keeps its exports.

    Attributes:
        program: The nsys program.
        source: What recipes are given: a link to the report, or the folder of links.
        name: The first report, for messages.
    """

    program: Path
    source: Path
    name: str
    _work: Path
    _path: str | None

    def run(
        self, recipe: str, arguments: Sequence[str] = (), *, timeout_s: float = nsys.TIMEOUT_S
    ) -> Path | None:
        """Run a recipe; returns the folder of its results, None when it found no data.

        Raises:
            NsysError: It gave no result for another reason, or did not end in time.
        """
        output = nsys.made(Path(tempfile.mkdtemp(dir=self._work))) / recipe
        command = [str(self.program), "recipe", recipe, "--input", str(self.source), *arguments]
        said = nsys.run(
            [*command, "--output", str(output)], nsys.made(self._work / "cwd"),
            timeout_s=timeout_s, environment={"PATH": self._path} if self._path else None,
        )  # fmt: skip
        if any(p.suffix in (".parquet", ".csv") for p in output.rglob("*")):
            return output
        if _NO_DATA.search(said):
            return None
        raise NsysError(
            f"recipe {recipe} gave no result: {nsys.reason(said, self.program)}",
            path=self.name,
            hint="see: rca doctor" if "No module named" in said else None,
        )


@contextmanager
def session(
    reports: Sequence[Path], program: str | Path | None = None, python: Path | None = None
) -> Iterator[Session]:
    """Lend reports to recipes. The reports' own folders stay as they are.

    Args:
        reports: .nsys-rep or .qdrep files; recipes do not read SQLite.
        program: The nsys program, see `rca.nsys.find`.
        python: The Python for recipes; PATH decides without.

    Raises:
        NsysError: There is no program, or a report is none.
    """
    for report in reports:
        _check(report)
    found = nsys.find(program)
    with scratch.folder() as work:
        linked = [nsys.linked(r, work / "reports", _stem(i, r)) for i, r in enumerate(reports)]
        source = linked[0] if len(linked) == 1 else work / "reports"
        path = _path(python, work / "bin") if python else None
        yield Session(found, source, str(reports[0]), work, path)


def run(
    name: str,
    reports: Sequence[Path],
    out_dir: Path,
    *,
    program: str | Path | None = None,
    python: Path | None = None,
    arguments: Sequence[str] = (),
    timeout_s: float = nsys.TIMEOUT_S,
) -> list[Path]:
    """Run one recipe over reports; returns the files it wrote, moved to `out_dir`.

    Args:
        name: Name of the recipe, for example 'cuda_gpu_kern_sum'.
        reports: See `session`, as `program` and `python`.
        out_dir: Where results go; made when missing. Files of the same name are replaced.
        arguments: Further arguments of the recipe.
        timeout_s: Seconds after which it is ended.

    Raises:
        NsysError: The name is none, a report is none, or no result was written.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise NsysError(f"{name!r} is no name of a recipe", hint="see: nsys recipe --help")
    with session(reports, program, python) as lent:
        try:  # not every recipe knows --csv, and none says so by its exit code
            results = lent.run(name, [*arguments, "--csv"], timeout_s=timeout_s)
        except NsysError as error:
            if "--csv" not in error.problem:
                raise
            results = lent.run(name, arguments, timeout_s=timeout_s)
        if results is None:
            raise NsysError(
                f"recipe {name} gave no result: no data for it", path=str(reports[0])
            )
        return _moved(results, out_dir)


def _check(report: Path) -> None:
    try:
        with report.open("rb") as file:
            magic = file.read(len(nsys.REPORT_MAGIC))
    except OSError as error:
        raise NsysError(f"cannot be read: {error.strerror}", path=str(report)) from error
    if magic != nsys.REPORT_MAGIC:
        raise NsysError("is no report of Nsight Systems (.nsys-rep, .qdrep)", path=str(report))


def _stem(number: int, report: Path) -> str:
    """A name that results can show: the report's own, told apart from others of the same name."""
    return f"{number:03d}_{re.sub(r'[^A-Za-z0-9._-]', '_', report.stem)}"


def _path(python: Path, folder: Path) -> str:
    """PATH with this Python in front, under the names that nsys asks for."""
    for name in ("python", "python3"):
        script = nsys.made(folder) / name
        script.write_text(f'#!/bin/sh\nexec {shlex.quote(str(python.absolute()))} "$@"\n')
        script.chmod(0o755)
    return os.pathsep.join(p for p in (str(folder), os.environ.get("PATH", "")) if p)


def _moved(output: Path, out_dir: Path) -> list[Path]:
    moved = []
    for path in sorted(p for p in output.rglob("*") if p.is_file() and not p.is_symlink()):
        target = out_dir / path.relative_to(output)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(path, target)
        moved.append(target)
    return moved
