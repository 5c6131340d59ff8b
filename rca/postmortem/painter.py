"""Pictures drawn by a process of its own.

The engine that draws holds Python's lock while it does, so that on a thread it would only stop the
others. The process is one for all pictures, and ends with the one that began it.
"""

from __future__ import annotations

import atexit
import json
import subprocess
import sys
import threading
from contextlib import suppress
from functools import cache
from typing import Any

from rca import programs


class Painter:
    """Draws specifications of Vega-Lite as SVG; where no process can be had, in this one."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._turn = threading.Lock()
        self._failed = not sys.executable

    def svg(self, spec: dict[str, Any], config: dict[str, Any], version: str) -> str:
        """One picture as SVG text.

        Args:
            spec: The specification.
            config: Vega-Lite's configuration: colours and fonts.
            version: The version of Vega-Lite, as `6.1`.

        Raises:
            ValueError: It cannot be drawn.
        """
        request = json.dumps([spec, config, version])
        with self._turn:
            drawn = self._ask(request)
        return _draw(request) if drawn is None else drawn

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is None:
            return
        programs.stop(process)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(OSError):  # a request that nobody read any more
                    pipe.close()

    def _ask(self, request: str) -> str | None:
        """What the process answers; None when there is none, or it could not."""
        if self._failed:
            return None
        try:
            self._process = self._process or _started()
            asked, answered = self._process.stdin, self._process.stdout
            if asked is None or answered is None:
                return None
            asked.write(f"{request}\n".encode("ascii"))
            asked.flush()
            answer: str | None = json.loads(answered.readline())
            return answer
        except (OSError, ValueError):  # it could not start, or was killed
            self._failed = True
            return None


@cache
def painter() -> Painter:
    """The painter of this process."""
    made = Painter()
    atexit.register(made.close)
    return made


def _started() -> subprocess.Popen[bytes]:
    # -P keeps the current directory, which may be a bundle, out of where modules come from.
    command = [sys.executable, "-P", "-m", __name__]
    return programs.start(command, asked=subprocess.PIPE, out=subprocess.PIPE)


def _draw(request: str) -> str:
    import vl_convert

    spec, config, version = json.loads(request)
    return str(
        vl_convert.vegalite_to_svg(
            json.dumps(spec), vl_version=version, config=config, allowed_base_urls=[]
        )
    )


def _serve() -> None:
    """Answer each line of requests with a line: the picture, or null."""
    for line in sys.stdin:
        try:
            answer: str | None = _draw(line)
        except ValueError:
            answer = None
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    _serve()
