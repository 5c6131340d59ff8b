"""Files of a bundle: found, sorted into sides, unpacked within limits; ingest whole or not at all."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from rca.archive import unpack
from rca.bundle import Bundle, BundleFile, find, unknown_settings
from rca.case import Case
from rca.errors import BundleError, CaseError, QueryError
from rca.ingest import ingest
from rca.parsers.stream import Blocks

CHANGE = '{"id": "c1", "time": "2026-03-01T10:00:00Z", "kind": "deploy", "subject": "deployment/a"}\n'


def sides(bundle: Bundle, root: Path) -> dict[str, str]:
    return {str(Path(f.name).relative_to(root)): f.part for f in bundle.files}


def test_folders_name_the_sides_and_some_files_are_never_read(tmp_path: Path) -> None:
    root = tmp_path / "b"
    for name in (
        "incident/changes.jsonl", "baseline/config/app.yaml", "loose.json", "truth.toml",
        "incident/truth.toml", ".hidden/x.json", "case.duckdb",
    ):  # fmt: skip
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(CHANGE)
    (root / "bundle.toml").write_text('title = "slow"\n')
    bundle = find([root], None, tmp_path / "w")
    assert sides(bundle, root) == {
        "baseline/config/app.yaml": "baseline",
        "incident/changes.jsonl": "incident",
        "loose.json": "incident",
    }
    assert bundle.settings == {"title": "slow"}


def test_an_explicit_baseline_wins(tmp_path: Path) -> None:
    for name in ("now/a.json", "before/a.json"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(CHANGE + name)
    bundle = find([tmp_path / "now"], tmp_path / "before", tmp_path / "w")
    assert sides(bundle, tmp_path) == {"now/a.json": "incident", "before/a.json": "baseline"}


@pytest.mark.parametrize("content", ["missing", "empty"])
def test_nothing_to_read_is_one_line(tmp_path: Path, content: str) -> None:
    path = tmp_path / "b"
    if content == "empty":
        path.mkdir()
    with pytest.raises(BundleError) as caught:
        find([path], None, tmp_path / "w")
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_links_that_lead_out_of_a_folder_are_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret.jsonl"
    secret.write_text(CHANGE)
    root = tmp_path / "b"
    root.mkdir()
    (root / "own.jsonl").write_text(CHANGE)
    (root / "out.jsonl").symlink_to(secret)
    (root / "in.jsonl").symlink_to(root / "own.jsonl")
    found = find([root], None, tmp_path / "w")
    assert sides(found, root) == {"in.jsonl": "incident"}  # the same file as own.jsonl, once


def archive(path: Path, members: dict[str, bytes]) -> Path:
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
            for name, data in members.items():
                made.writestr(name, data)
        return path
    mode = "w:gz" if path.suffix == ".gz" else "w"
    with tarfile.open(path, mode) as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


@pytest.mark.parametrize("name", ["b.zip", "b.tar", "b.tar.gz"])
def test_archives_are_read_with_their_sides(tmp_path: Path, name: str) -> None:
    members = {
        "x/incident/changes.jsonl": CHANGE.encode(),
        "x/baseline/changes.jsonl": CHANGE.encode(),
    }
    made = archive(tmp_path / name, members)
    bundle = find([made], None, tmp_path / "w")
    assert sorted((f.name, f.part) for f in bundle.files) == [
        (f"{made}!x/baseline/changes.jsonl", "baseline"),
        (f"{made}!x/incident/changes.jsonl", "incident"),
    ]
    with Case.create() as case:
        assert ingest(case, bundle) == []
        assert case.rows("SELECT part, status FROM source ORDER BY part") == [
            ("baseline", "ok"),
            ("incident", "ok"),
        ]


@pytest.mark.parametrize("name", ["b.zip", "b.tar"])
def test_members_that_point_outside_are_refused(tmp_path: Path, name: str) -> None:
    made = archive(
        tmp_path / name,
        {"../evil.json": b"{}", "/abs.json": b"{}", "good.jsonl": CHANGE.encode()},
    )
    refused: list[tuple[str, str]] = []
    kept = [n for n, _ in unpack(made, tmp_path / "w", 10**6, refused)]
    assert kept == ["good.jsonl"]
    assert len(refused) == 2
    assert not (tmp_path.parent / "evil.json").exists()


def test_links_in_a_tar_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "b.tar"
    with tarfile.open(path, "w") as tar:
        info = tarfile.TarInfo("link.json")
        info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(info)
    refused: list[tuple[str, str]] = []
    assert list(unpack(path, tmp_path / "w", 10**6, refused)) == []
    assert len(refused) == 1


@pytest.mark.parametrize("name", ["b.zip", "b.tar.gz"])
def test_a_bomb_stops_at_the_limit(tmp_path: Path, name: str) -> None:
    made = archive(tmp_path / name, {"zeros.json": b"0" * 5_000_000})
    with pytest.raises(BundleError, match="--max-unpacked"):
        list(unpack(made, tmp_path / "w", 1_000_000, []))


def test_a_cut_gzip_gives_what_is_whole_and_says_so(tmp_path: Path) -> None:
    import gzip

    whole = b"".join(b"line %d\n" % i for i in range(100_000))
    path = tmp_path / "cut.gz"
    path.write_bytes(gzip.compress(whole)[:60_000])
    blocks = Blocks(path)
    data = b"".join(blocks)
    assert 0 < len(data) < len(whole)
    assert whole.startswith(data)
    assert blocks.damage is not None


def test_the_same_file_twice_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "changes.jsonl"
    path.write_text(CHANGE)
    bundle = Bundle([BundleFile(path, "changes.jsonl", "incident")])
    with Case.create() as case:
        ingest(case, bundle)
        ingest(case, bundle)
        assert case.scalar("SELECT count(*) FROM source") == 1
        assert case.scalar("SELECT count(*) FROM change") == 1


def test_what_cannot_be_read_is_noted_and_the_rest_is_kept(tmp_path: Path) -> None:
    (tmp_path / "changes.jsonl").write_text(CHANGE)
    (tmp_path / "notes.txt").write_text("The quick brown fox jumps over the lazy dog.\n")
    (tmp_path / "half.json").write_text('{"traceEvents": [')
    with Case.create() as case:
        failures = ingest(case, find([tmp_path], None, tmp_path / "w"))
        assert [Path(f.split(":")[0]).name for f in failures][-1] == "notes.txt"
        assert case.scalar("SELECT count(*) FROM change") == 1


def test_a_case_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "case.duckdb"
    with pytest.raises(CaseError, match="no such case"):
        Case.open(path)
    path.write_text("not a database, but long enough to be read as one" * 100)
    with pytest.raises(CaseError):
        Case.open(path)


def test_names_from_a_bundle_are_never_identifiers() -> None:
    import polars as pl

    with Case.create() as case, pytest.raises(QueryError):
        case.insert("change", pl.DataFrame({"id); DROP TABLE change; --": [1]}))


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"title": "x", "service": "y", "slo": {"any": 1}, "links": {"any": "z"}}, []),
        ({"incident": {"start": 1, "end": 2}}, []),
        ({"servise": "y"}, ["servise is not read: is it service?"]),
        ({"zzz": 1}, ["zzz is not read: known are title, service, incident, slo, links"]),
        ({"incident": {"begin": 1, "ends": 2}}, [
            "incident.begin is not read: known are start, end", "incident.ends is not read: is it end?",
        ]),
        ({"incident": "02:17"}, []),  # said to be no table by whoever reads it
    ],
)  # fmt: skip
def test_each_key_that_is_not_read_is_named(
    settings: dict[str, object], told: list[str]
) -> None:
    assert unknown_settings(settings) == told
