"""What of rca's surroundings is here, and how to get what is not."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

from rca import machine, nsys, programs, scratch
from rca.errors import CaseError, EngineError, NsysError
from rca.nsys import recipe as nsys_recipe
from rca.plain import printable, size

Status = Literal["found", "missing", "broken", "low"]

_CORE = (
    "duckdb", "polars", "pyarrow", "adbc-driver-sqlite", "msgspec", "isal", "scikit-learn",
    "scipy", "pyyaml", "typer", "rich", "jinja2", "altair", "vl-convert-python", "pydantic",
    "openai",
)  # fmt: skip
_MODULES = {"scikit-learn": "sklearn", "pyyaml": "yaml", "vl-convert-python": "vl_convert"}
_ANSWER_S = 30
_LITTLE_DISK = 5_000_000_000
_LITTLE_MEMORY = 2_000_000_000


class Finding(NamedTuple):
    """One thing that was looked for.

    Attributes:
        name: What was looked for.
        status: 'found', 'missing', 'broken' (there, but of no use as it is) or 'low' (space).
        detail: What was found, in one line.
        serves: What it is for.
        hint: How to get or mend it; None when there is nothing to do.
        core: Whether nothing works without it.
    """

    name: str
    status: Status
    detail: str
    serves: str
    hint: str | None = None
    core: bool = False


def examine(folder: Path | None = None) -> list[Finding]:
    """Everything that rca may use, looked at one by one; nothing is installed or changed.

    Args:
        folder: Where results would be written; the current folder unless given.
    """
    found = [_python(), _packages(), _case()]
    found += [*_programs(), _recipes(), *_torch(), _vllm(), _dask(), *_endpoint()]
    return [*found, _disk(folder or Path()), _memory()]


def broken_core(findings: list[Finding]) -> list[str]:
    """Names of what nothing works without and is not sound."""
    return [f.name for f in findings if f.core and f.status != "found"]


def _python() -> Finding:
    told = f"{sys.version.split()[0]} in {sys.prefix}"
    sound = sys.version_info >= (3, 11)
    return Finding(
        "Python", "found" if sound else "broken", told, "everything",
        None if sound else "make a virtual environment with Python 3.11 or newer", core=True,
    )  # fmt: skip


def _packages() -> Finding:
    there = {name: _version(name) for name in _CORE}
    lacking = [name for name, version in there.items() if version is None]
    told = ", ".join(f"{name} {version}" for name, version in there.items() if version)
    if lacking:
        told = f"without {', '.join(lacking)}"
    return Finding(
        "packages", "missing" if lacking else "found", told, "everything",
        "run: pip install --force-reinstall trace-rca" if lacking else None, core=True,
    )  # fmt: skip


def _version(package: str) -> str | None:
    """Version of an installed package that Python can find, None without one."""
    module = _MODULES.get(package, package.replace("-", "_"))
    try:
        version = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
    return version if importlib.util.find_spec(module) else None


def _case() -> Finding:
    """Whether DuckDB works: a case with all tables and views, written to disk and opened again."""
    serves = "everything"
    try:
        from rca.case import Case

        with scratch.folder() as folder:
            path = folder / "case.duckdb"
            Case.create(path).close()
            with Case.open(path, read_only=True) as case:
                views = case.scalar("SELECT count(*) FROM duckdb_views() WHERE NOT internal")
    except (ImportError, CaseError, OSError) as error:
        line = printable(str(error).splitlines()[0] if str(error) else type(error).__name__)
        hint = "check TMPDIR, its free space and the package duckdb"
        return Finding("case", "broken", line, serves, hint, core=True)
    return Finding("case", "found", f"written and opened, {views} views", serves, core=True)


def _programs() -> Iterator[Finding]:
    serves = "reports (.nsys-rep, .qdrep) and rca recipe; exported .sqlite files need no nsys"
    try:
        program = nsys.find()
        yield Finding("nsys", "found", f"{nsys.version(program)} at {program}", serves)
    except (NsysError, OSError) as error:
        here = not isinstance(error, NsysError) or error.path is not None
        hint = (
            f"install NVIDIA Nsight Systems (command line), or name it in {nsys.VARIABLE}; or "
            "export where it was recorded: nsys export --type sqlite FILE"
        )
        yield Finding("nsys", "broken" if here else "missing", _line(error), serves, hint)
    serves = "blocks of Prometheus' TSDB; API answers and text need no promtool"
    promtool = shutil.which("promtool")
    if promtool is None:
        hint = "install Prometheus (Debian: apt-get install prometheus), or take query_range"
        yield Finding("promtool", "missing", "not on PATH", serves, hint)
        return
    said = _said([promtool, "--version"])
    version = re.search(r"version (\S+)", said)
    told = f"{version[1] if version else 'of unknown version'} at {promtool}"
    yield Finding("promtool", "found" if version else "broken", told, serves)


def _recipes() -> Finding:
    """The Python that nsys would run recipes with."""
    serves = "rca recipe, and NVIDIA's own figures beside ours in rca analyze"
    try:
        python = nsys_recipe.find_python()
    except NsysError as error:
        status: Status = "broken" if "does not run" in error.problem else "missing"
        return Finding("recipe environment", status, _line(error), serves, nsys_recipe.HINT)
    said = _said([str(python), "-W", "ignore", "--version"]).strip()
    return Finding("recipe environment", "found", printable(f"{said} at {python}"), serves)


def _torch() -> Iterator[Finding]:
    serves = "the experiment, rca reproduce; without it the diagnosis is the same, untested"
    if importlib.util.find_spec("torch") is None:
        hint = "run: pip install 'trace-rca[torch]'"
        yield Finding("torch", "missing", "not installed", serves, hint)
        return
    try:
        import torch
    except (ImportError, OSError) as error:
        yield Finding("torch", "broken", _line(error), serves, "install torch again")
        return
    yield Finding("torch", "found", str(torch.__version__), serves)
    serves = "the experiment on the GPU; without it on the CPU"
    if torch.cuda.is_available():
        names = ", ".join(
            torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())
        )
        yield Finding("CUDA", "found", printable(names), serves)
    elif torch.version.cuda is None:
        hint = "a build of torch for CUDA, on a machine with an NVIDIA GPU"
        yield Finding("CUDA", "missing", "this torch is built for the CPU", serves, hint)
    else:
        told = f"torch is built for CUDA {torch.version.cuda}, no device answers"
        yield Finding(
            "CUDA", "missing", told, serves, "see nvidia-smi and the driver's version"
        )


def _vllm() -> Finding:
    """The program alone: starting it would take half a minute."""
    from rca.models import vllm_server

    serves = "rca reproduce --engine vllm; the other engines do without it"
    try:
        return Finding("vllm", "found", printable(str(vllm_server.find())), serves)
    except EngineError as error:
        status: Status = "broken" if error.path else "missing"
        return Finding("vllm", status, _line(error), serves, vllm_server.INSTALL_HINT)


def _dask() -> Finding:
    serves = "fleets of traces"
    versions = [(name, _version(name)) for name in ("dask", "distributed")]
    if all(version for _, version in versions):
        told = ", ".join(f"{name} {version}" for name, version in versions)
        return Finding("dask", "found", told, serves)
    hint = "run: pip install 'trace-rca[fleet]'"
    return Finding("dask", "missing", "not installed", serves, hint)


def _endpoint() -> Iterator[Finding]:
    """The variables of a language model's endpoint. Nothing is called; keys are never shown."""
    serves = "rca judge --judge openai; the rules judge without it"
    url = os.environ.get("OPENAI_BASE_URL")
    key = bool(os.environ.get("OPENAI_API_KEY", "").strip())
    if url is None:
        told = "not set: OpenAI's own address would be used"
        yield Finding(
            "OPENAI_BASE_URL", "found" if key else "missing", told, serves,
            None if key else "set it to an OpenAI-compatible endpoint, as http://localhost:8000/v1",
        )  # fmt: skip
    else:
        yield _address(url, serves)
    told = "set" if key else "not set"
    hint = None if key else "set it when the endpoint asks for a key"
    yield Finding("OPENAI_API_KEY", "found" if key else "missing", told, serves, hint)


def _address(url: str, serves: str) -> Finding:
    """The address, without user, password and query."""
    try:
        parts = urlsplit(url.strip())
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port, parts = None, None, urlsplit("")
    if parts.scheme not in {"http", "https"} or not host:
        hint = "write for example http://localhost:8000/v1"
        return Finding("OPENAI_BASE_URL", "broken", "set, but no http address", serves, hint)
    shown = f"{parts.scheme}://{host}{f':{port}' if port else ''}{parts.path}"
    return Finding("OPENAI_BASE_URL", "found", printable(shown), serves)


def _disk(folder: Path) -> Finding:
    places = {"results": folder, "unpacking": Path(tempfile.gettempdir())}
    free = {name: shutil.disk_usage(place).free for name, place in places.items()}
    told = ", ".join(f"{size(n)} free for {name} ({places[name]})" for name, n in free.items())
    little = min(free.values()) < _LITTLE_DISK
    hint = (
        "choose --out and TMPDIR on a larger disk: recordings unpack to many times their size"
    )
    return Finding(
        "disk", "low" if little else "found", told, "cases and unpacked archives",
        hint if little else None,
    )  # fmt: skip


def _memory() -> Finding:
    serves = "large recordings"
    free = machine.available_bytes()
    if free is None:
        return Finding("memory", "missing", "this system does not say", serves)
    little = free < _LITTLE_MEMORY
    hint = "close other programs, or ingest fewer files at once" if little else None
    told = f"{size(free)} available, {os.cpu_count()} CPUs"
    return Finding("memory", "low" if little else "found", told, serves, hint)


def _said(command: list[str]) -> str:
    """What a program prints, '' when it does not run; in a folder of its own, without stdin."""
    with scratch.folder() as folder:
        try:
            done = programs.run(command, folder, timeout_s=_ANSWER_S)
        except (OSError, subprocess.TimeoutExpired):
            return ""
    return (done.out + done.err).decode("utf-8", "replace")


def _line(error: Exception) -> str:
    if isinstance(error, (NsysError, EngineError)):
        return printable(f"{error.path}: {error.problem}" if error.path else error.problem)
    return printable(str(error).splitlines()[0] if str(error) else type(error).__name__)
