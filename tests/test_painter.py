"""Pictures come from a process of their own, and from this one when that is gone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rca.postmortem import painter as painter_module
from rca.postmortem.painter import Painter

SPEC = {
    "data": {"values": [{"at": 1, "of": "ü\n<script>"}]},
    "mark": "bar",
    "encoding": {"x": {"field": "at", "type": "quantitative"}, "y": {"field": "of"}},
}


def test_the_process_draws_what_this_one_would() -> None:
    painter = Painter()
    try:
        there = painter.svg(SPEC, {"background": "#123456"}, "6.1")
        assert painter._process is not None and painter._process.poll() is None
    finally:
        painter.close()
    here = painter_module._draw(json.dumps([SPEC, {"background": "#123456"}, "6.1"]))
    assert there == here
    assert "#123456" in there and "<script>" not in there


def test_pictures_go_on_when_the_process_is_killed() -> None:
    painter = Painter()
    first = painter.svg(SPEC, {}, "6.1")
    assert painter._process is not None
    os.kill(painter._process.pid, signal.SIGKILL)
    painter._process.wait()
    assert painter.svg(SPEC, {}, "6.1") == first
    painter.close()


def test_what_cannot_be_drawn_is_said_and_the_process_goes_on() -> None:
    painter = Painter()
    try:
        with pytest.raises(ValueError, match="conversion failed"):
            painter.svg({"mark": 5}, {}, "6.1")
        assert painter.svg(SPEC, {}, "6.1").startswith("<svg")
    finally:
        painter.close()


def test_the_process_ends_with_the_one_that_began_it() -> None:
    program = (
        "from rca.postmortem.painter import painter\n"
        f"painter().svg({SPEC!r}, {{}}, '6.1')\n"
        "print(painter()._process.pid, flush=True)\n"
        "input()\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.kill()
    parent.communicate()
    for _ in range(100):
        if not _runs(child):
            return
        time.sleep(0.05)
    raise AssertionError("the painter is still there")


def _runs(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"
