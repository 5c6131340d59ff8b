"""Libraries loaded ahead: there when they are wanted, the thread gone, failures left to whoever needs them."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from rca.commands import ahead


def _threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name == "rca-ahead"]


def test_later_stages_find_their_libraries_loaded() -> None:
    program = (
        "import sys\n"
        "from rca.commands.ahead import loaded_ahead\n"
        "with loaded_ahead():\n"
        "    import rca.patterns\n"
        "    from sklearn.cluster import HDBSCAN\n"
        "print('sklearn.cluster' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


def test_the_thread_ends_with_what_it_served(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []
    begun, go_on = threading.Event(), threading.Event()

    def first() -> None:
        begun.set()
        go_on.wait(10)
        loaded.append("first")

    monkeypatch.setattr(ahead, "_LOADS", (first, lambda: loaded.append("second")))
    with pytest.raises(ValueError, match="bad bundle"), ahead.loaded_ahead():
        assert begun.wait(10)
        threading.Timer(0.2, go_on.set).start()
        raise ValueError("bad bundle")
    assert loaded == ["first"]
    assert _threads() == []


def test_a_library_that_is_missing_is_told_of_where_it_is_needed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing() -> None:
        raise ImportError("no clustering here")

    monkeypatch.setattr(ahead, "_LOADS", (missing,))
    with ahead.loaded_ahead():
        pass
    assert capsys.readouterr() == ("", "")
    assert _threads() == []
