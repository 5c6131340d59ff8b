"""Files made to harm whoever reads them, by name."""

from __future__ import annotations

import gzip
import io
import json
import sqlite3
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

GOOD = b'{"id": "c1", "time": "2026-03-01T10:00:00Z", "kind": "deploy", "subject": "a"}\n'
DEEP = 100_000
DIGITS = "7" * 10_000_000
_SESSION = """
    CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER);
    INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1755753377038569519);
    CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
"""
_KERNELS = "start, end, deviceId, streamId, correlationId, globalPid, demangledName"

Make = Callable[[Path], Path]


def text(name: str, content: str | bytes) -> Make:
    """A file with this content."""

    def make(folder: Path) -> Path:
        data = content.encode() if isinstance(content, str) else content
        (folder / name).write_bytes(data)
        return folder / name

    return make


def tar_of_members_that_lead_out(folder: Path) -> Path:
    """`..`, absolute, links, a device and a pipe, beside one good file."""
    path = folder / "b.tar"
    kinds = {
        "../up.json": tarfile.REGTYPE, "/abs.json": tarfile.REGTYPE, "sym.json": tarfile.SYMTYPE,
        "hard.json": tarfile.LNKTYPE, "dev.json": tarfile.CHRTYPE, "block.json": tarfile.BLKTYPE,
        "pipe.json": tarfile.FIFOTYPE, "a/../../b.json": tarfile.REGTYPE,
    }  # fmt: skip
    with tarfile.open(path, "w") as tar:
        for name, kind in kinds.items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "/etc/passwd"
            tar.addfile(info)
        good = tarfile.TarInfo("good.jsonl")
        good.size = len(GOOD)
        tar.addfile(good, io.BytesIO(GOOD))
    return path


def zip_of_members_that_lead_out(folder: Path) -> Path:
    """The same in a zip."""
    path = folder / "b.zip"
    with zipfile.ZipFile(path, "w") as made:
        for name in ("../up.json", "/abs.json", "a/../../b.json", "..\\win.json"):
            made.writestr(name, b"{}")
        link = zipfile.ZipInfo("link.json")
        link.external_attr = 0o120777 << 16
        made.writestr(link, "/etc/passwd")
        made.writestr("good.jsonl", GOOD)
    return path


def zip_bomb(folder: Path) -> Path:
    """200 MB of zeros in 200 kB."""
    path = folder / "bomb.zip"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made,
        made.open("zeros.json", "w", force_zip64=True) as member,
    ):
        for _ in range(200):
            member.write(b"0" * 1_000_000)
    return path


def zip_of_overlapping_members(folder: Path) -> Path:
    """Thousand names for the bytes of one member, as Fifield's bomb has them."""
    path = folder / "overlap.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("a.json", b"0" * 5_000_000)
        first = made.infolist()[0]
        for i in range(1000):
            info = zipfile.ZipInfo(f"a{i}.json")
            for name in ("header_offset", "compress_size", "file_size", "CRC", "compress_type"):
                setattr(info, name, getattr(first, name))
            made.filelist.append(info)
        made._didModify = True
    return path


def tar_with_too_many_members(folder: Path) -> Path:
    """One more than is taken."""
    path = folder / "many.tar"
    with tarfile.open(path, "w") as tar:
        for i in range(20_001):
            tar.addfile(tarfile.TarInfo(f"{i}.json"))
    return path


def zip_that_lists_members_without_end(folder: Path) -> Path:
    """Half a million names in a list of 24 MB, none of them with content."""
    path = folder / "list.zip"
    entry = struct.pack("<4s4B4HL2L5H2L", b"PK\1\2", 20, 3, 20, *[0] * 8, 1, *[0] * 6) + b"a"
    n = 500_000
    record = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, n, n, n * len(entry), 30)
    locator = struct.pack("<4sLQL", b"PK\6\7", 0, 30 + n * len(entry), 1)
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 65_535, 65_535, 2**32 - 1, 2**32 - 1, 0)
    path.write_bytes(b"PK\3\4" + bytes(26) + entry * n + record + locator + end)
    return path


def tar_that_is_passed_over_without_end(folder: Path) -> Path:
    """A member that leads out, and is 10^30 bytes long as its header says."""
    path = folder / "long.tar"
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        member = tarfile.TarInfo("../up.json")
        member.pax_headers = {"size": "9" * 30}
        tar.addfile(member)
    return path


def tar_of_links_without_end(folder: Path) -> Path:
    """A hundred thousand links to a file outside, in 300 kB."""
    path = folder / "links.tar.gz"
    link = tarfile.TarInfo("link.json")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    path.write_bytes(gzip.compress(link.tobuf() * 100_000))
    return path


def packed_bomb(folder: Path) -> Path:
    """A tar of 300 MB of zeros, packed to 300 kB."""
    path = folder / "bomb.tar.gz"
    member = tarfile.TarInfo("zeros.json")
    member.size = 300_000_000
    with gzip.open(path, "wb") as packed:
        packed.write(member.tobuf())
        for _ in range(301):
            packed.write(bytes(1_000_000))
    return path


def nested_archives(folder: Path) -> Path:
    """A zip in a zip in a zip, beside one good file."""
    inner = GOOD
    for level in range(3):
        made = io.BytesIO()
        with zipfile.ZipFile(made, "w") as archive:
            archive.writestr("inner.zip" if level else "changes.jsonl", inner)
            archive.writestr("good.jsonl", GOOD)
        inner = made.getvalue()
    (folder / "nested.zip").write_bytes(inner)
    return folder / "nested.zip"


def sqlite(*scripts: str) -> Make:
    """An export of Nsight Systems with these statements run."""

    def make(folder: Path) -> Path:
        path = folder / "report.sqlite"
        with sqlite3.connect(path) as db:
            db.executescript(_SESSION)
            for script in scripts:
                db.executescript(script)
        db.close()
        return path

    return make


def cut_pages(folder: Path) -> Path:
    """A database whose pages after the first are noise."""
    path = sqlite(f"CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL ({_KERNELS})")(folder)
    data = bytearray(path.read_bytes())
    data[4096:] = bytes(i * 37 % 256 for i in range(len(data) - 4096))
    path.write_bytes(data)
    return path


def locked(folder: Path) -> Path:
    """A database with a journal beside it: somebody was writing."""
    path = sqlite()(folder)
    path.with_name("report.sqlite-wal").write_bytes(b"x" * 100)
    return path


ENDLESS_VIEW = """CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS WITH RECURSIVE n(i) AS
    (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS start, i + 1 AS "end", 0 AS deviceId,
    7 AS streamId, i AS correlationId, 1 AS globalPid, 1 AS demangledName FROM n;"""
HUGE_VALUE = f"""CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL ({_KERNELS.replace("end", '"end"')},
    shortName GENERATED ALWAYS AS (hex(zeroblob(400000000))) VIRTUAL);
    INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL ({_KERNELS.replace("end", '"end"')}) VALUES (1,2,0,7,5,1,1);"""


def label_sets(folder: Path) -> Path:
    """A label that is different in each of a million samples."""
    path = folder / "metrics.txt"
    with path.open("w") as file:
        file.write("# TYPE load gauge\n")
        for i in range(1_000_000):
            file.write(f'load{{user="{i:07d}"}} 1 1700000000\n')
        file.write("# EOF\n")
    return path


def spans(*rows: tuple[str, str | None, int, int]) -> str:
    """Jaeger JSON of spans: id, parent, start in µs, duration in µs."""
    made = [
        {
            "traceID": "t1", "spanID": span, "operationName": "op", "processID": "p1",
            "startTime": start, "duration": duration,
            "references": [{"refType": "CHILD_OF", "traceID": "t1", "spanID": parent}] if parent else [],
        }
        for span, parent, start, duration in rows
    ]  # fmt: skip
    process = {"p1": {"serviceName": "a"}}
    return json.dumps({"data": [{"traceID": "t1", "spans": made, "processes": process}]})


NOW = 1_772_359_200_000_000
CYCLE = spans(
    ("a", "b", NOW, 100), ("b", "a", NOW, 100), ("c", "c", NOW, 50), ("d", "a", NOW, 9)
)
CHAIN = spans(*((f"s{i}", f"s{i - 1}" if i else None, NOW + i, 100_000) for i in range(20_000)))
YEAR_2500 = spans(("a", None, 16_725_225_600_000_000, 100), ("b", None, NOW, 100))
YEAR_2200 = spans(("a", None, 7_258_118_400_000_000, 100), *((f"n{i}", None, NOW + i * 1000, 100) for i in range(500)))  # fmt: skip


def varint_bomb(folder: Path) -> Path:
    """A protobuf message that claims to be 2 GB long."""
    path = folder / "trace.pb"
    path.write_bytes(
        b"\x0a" + b"\xff\xff\xff\xff\x07" + b"\x0a\x05" * 1000 + struct.pack(">I", 7)
    )
    return path
