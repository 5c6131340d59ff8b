"""Damage in an archive costs what it hits, and the reason is told; no byte of it stops the run."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rca import archive
from rca.bundle import find
from rca.errors import BundleError

TEXT = b'{"id": "c1", "time": "2026-03-01T10:00:00Z", "kind": "deploy", "subject": "a"}\n' * 50
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
PACKERS: tuple[Callable[[bytes], bytes], ...] = (
    bytes,
    gzip.compress,
    bz2.compress,
    lzma.compress,
)


def zipped(*names: str, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A zip with the text under each of these names."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as packed:
        for name in names:
            packed.writestr(name, TEXT)
    return made.getvalue()


def tarred(*names: str, **headers: str) -> bytes:
    """A tar with the text under each of these names; headers of the pax form for each."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size, member.pax_headers = (
                len(TEXT),
                {k.replace("_", "."): v for k, v in headers.items()},
            )
            tar.addfile(member, io.BytesIO(TEXT))
    return made.getvalue()


def looked(tmp_path: Path, data: bytes) -> tuple[list[str], list[str]]:
    """What is found in an archive of these bytes: names, and reasons of what is refused."""
    (tmp_path / "a").write_bytes(data)
    found = find([tmp_path / "a"], None, tmp_path / "work")
    return [f.name.partition("!")[2] for f in found.files], [why for _, why in found.refused]


@pytest.mark.parametrize("method", METHODS[1:])
def test_a_damaged_member_costs_itself(tmp_path: Path, method: int) -> None:
    data = bytearray(zipped("a.jsonl", "b.jsonl", method=method))
    data[60:70] = b"\xff" * 10
    names, (why,) = looked(tmp_path, bytes(data))
    assert names == ["b.jsonl"]
    assert why.startswith("is damaged: ")


def test_a_method_that_is_not_known_costs_its_member(tmp_path: Path) -> None:
    data = bytearray(zipped("a.jsonl", "b.jsonl"))
    data[8] = data[data.index(b"PK\1\2") + 10] = 99
    names, (why,) = looked(tmp_path, bytes(data))
    assert names == ["b.jsonl"]
    assert why.startswith("cannot be unpacked: ")


def test_names_too_long_for_a_file_are_read(tmp_path: Path) -> None:
    long = "x" * 300 + ".jsonl"
    assert looked(tmp_path, zipped(long, "ü" * 300, "b.jsonl")) == (
        [long, "ü" * 300, "b.jsonl"],
        [],
    )
    (tmp_path / "tar").mkdir()
    assert looked(tmp_path / "tar", tarred(long, "b.jsonl")) == ([long, "b.jsonl"], [])


def test_names_that_are_no_text_are_written_out(tmp_path: Path) -> None:
    names, refused = looked(tmp_path, tarred("a\udcff.jsonl", "../b\udcff.jsonl"))
    assert names == ["a\\udcff.jsonl"]
    assert refused == ["not a plain file inside the archive"]
    found = find([tmp_path / "a"], None, tmp_path / "again")
    for text in [*(f.name for f in found.files), *(n for n, _ in found.refused)]:
        text.encode()


@pytest.mark.parametrize(
    "headers", [{"path": "a\0b"}, {"size": "9" * 30}, {"GNU_sparse_major": "1", "GNU_sparse_minor": "0"},
                {"GNU_sparse_map": "0,9" + "9" * 14, "GNU_sparse_size": "9" * 15}],
)  # fmt: skip
def test_headers_that_make_no_sense_are_told(tmp_path: Path, headers: dict[str, str]) -> None:
    names, refused = looked(tmp_path, tarred("a.jsonl", **headers))
    assert names == []
    assert refused


def test_a_packed_tar_that_is_damaged_is_told(tmp_path: Path) -> None:
    """Every byte in turn: what unpacks gzip has errors of its own."""
    whole = gzip.compress(tarred("a.jsonl"), mtime=0)
    for at in range(10, len(whole) - 8):
        (tmp_path / str(at)).mkdir()
        names, refused = looked(
            tmp_path / str(at), whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :]
        )
        assert refused or names, at


def test_a_tar_that_is_cut_keeps_what_came_before(tmp_path: Path) -> None:
    names, (why,) = looked(tmp_path, tarred("a.jsonl", "b.jsonl")[:7_000])
    assert names == ["a.jsonl"]
    assert why == "is damaged: unexpected end of data"


def test_a_disk_that_is_full_is_not_called_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "_file_name", lambda _: "no/such/folder")  # writing fails
    with pytest.raises(FileNotFoundError):
        looked(tmp_path, zipped("a.jsonl"))


def test_members_that_are_refused_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "MAX_MEMBERS", 5)
    with pytest.raises(BundleError, match="more than 5 members"):
        looked(tmp_path, tarred(*(f"../{i}.json" for i in range(9))))


_ARCHIVES = [zipped("a.jsonl", "b.jsonl", method=m) for m in METHODS]
_ARCHIVES += [pack(tarred("a.jsonl", "x" * 200)) for pack in PACKERS]


@settings(max_examples=150)
@given(st.sampled_from(_ARCHIVES), st.data())
def test_no_damage_stops_the_run(
    tmp_path_factory: pytest.TempPathFactory, whole: bytes, data: st.DataObject
) -> None:
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(damaged)))
        damaged[at : at + data.draw(st.integers(0, 8))] = data.draw(st.binary(max_size=8))
    looked(tmp_path_factory.mktemp("damaged"), bytes(damaged))
