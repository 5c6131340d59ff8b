"""NVIDIA's recipes beside our own figures: kept, compared, bounded, and never in the way."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import gpu_recordings as recordings
import polars as pl
import pytest
from test_nsys_sqlite import KERNELS, PID, SESSION, UTC, build

from rca import nsys
from rca.bundle import Bundle, BundleFile
from rca.case import Case
from rca.errors import NsysError
from rca.ingest import ingest
from rca.nsys import recipe as nsys_recipe
from rca.nsys import recipes

CALLS = f"""
    CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, "end" INTEGER, eventClass INTEGER,
        globalTid INTEGER, correlationId INTEGER, nameId INTEGER);
    INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (900, 950, 0, {PID + 1}, 5, 2);
    INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (800001500, 800002500, 0, 7, 6, {PID}, 1);
"""
KERNEL_SUM = {
    "Name": ["gemm"],
    "Total Time": [1500],
    "Instances": [2],
    "Min": [500],
    "Max": [1000],
    "Time": [100.0],
}
API_SUM = {
    "Name": ["cudaLaunchKernel"],
    "Total Time": [50],
    "Num Calls": [1],
    "Min": [50],
    "Max": [50],
}
GAPS = {"Duration": [800000000], "Start": [1500], "PID": [4321], "Device ID": [0]}
USE = {
    "In-Use": [0.0],
    "Duration": [800000000],
    "Start": [1500],
    "PID": [4321],
    "Device ID": [0],
}


@pytest.fixture
def lent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for nsys that exports and copies what lies in the folder given back."""
    folder = tmp_path / "lent"
    folder.mkdir()
    build(folder / "export.sqlite", SESSION, KERNELS, CALLS)
    script = tmp_path / "nsys"
    script.write_text(f"""#!{sys.executable}
import pathlib, shutil, sys, time
lent, argv = pathlib.Path({str(folder)!r}), sys.argv[1:]
output = pathlib.Path(argv[argv.index("--output") + 1])
if argv[0] == "export":
    shutil.copy(lent / "export.sqlite", output)
elif (lent / argv[1]).is_file():
    output.mkdir()
    name = "rank_stats.parquet" if argv[1].endswith("_sum") else "analysis.parquet"
    shutil.copy(lent / argv[1], output / name)
elif (lent / "slow").exists():
    time.sleep(60)
else:
    print("INFO: report was successfully processed, but no data was found.")
""")
    script.chmod(0o755)
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho lacks\n")
    python.chmod(0o755)
    monkeypatch.setenv(nsys.VARIABLE, str(script))
    monkeypatch.setenv(nsys_recipe.VARIABLE, str(python))
    return folder


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    report = tmp_path / "run.nsys-rep"
    report.write_bytes(nsys.REPORT_MAGIC + b"2023@4@4@54-234433681190v0.\n")
    return Bundle([BundleFile(report, report.name, "incident")])


def analysed(bundle: Bundle, budget_s: float | None = 100.0) -> Case:
    case = Case.create()
    assert ingest(case, bundle) == []
    recipes.run(case, bundle, budget_s)
    return case


def test_what_recipes_say_is_kept_and_equal_to_ours(lent: Path, bundle: Bundle) -> None:
    for name, rows in (
        ("cuda_gpu_kern_sum", KERNEL_SUM),
        ("cuda_api_sum", API_SUM),
        ("gpu_gaps", GAPS),
        ("gpu_time_util", USE),
    ):
        pl.DataFrame(rows).write_parquet(lent / name)
    case = analysed(bundle)
    assert case.rows("SELECT recipe, status FROM recipe_run WHERE status <> 'no_data' ORDER BY 1") == [
        ("cuda_api_sum", "rows"), ("cuda_gpu_kern_sum", "rows"), ("gpu_gaps", "rows"), ("gpu_time_util", "rows"),
    ]  # fmt: skip
    assert case.rows("SELECT recipe, start_ns, dur_ns, pid, use_share FROM recipe_row WHERE name IS NULL ORDER BY 1") == [
        ("gpu_gaps", UTC + 1500, 800_000_000, 4321, None), ("gpu_time_util", UTC + 1500, 800_000_000, 4321, 0.0),
    ]  # fmt: skip
    assert case.rows("SELECT name, count, total_ns, fields ->> 'Time' FROM recipe_row WHERE recipe = 'cuda_gpu_kern_sum'") == [
        ("gemm", 2, 1500, "100.0")
    ]  # fmt: skip
    assert case.rows("SELECT DISTINCT agrees FROM recipe_check") == [(True,)]
    assert recordings.notes(case)["recipes_agree"] == 4


@pytest.mark.parametrize(
    ("recipe", "rows"),
    [
        ("cuda_gpu_kern_sum", KERNEL_SUM | {"Total Time": [1501]}),
        ("cuda_gpu_kern_sum", KERNEL_SUM | {"Name": ["other"]}),
        ("gpu_gaps", GAPS | {"Start": [1400]}),
        ("gpu_time_util", USE | {"In-Use": [40.0]}),
        ("cuda_api_sync", {"Duration": [9], "Start": [900], "PID": [4321], "TID": [1], "API Name": ["x"]}),
        ("cuda_memcpy_async", {"Duration": [9], "Start": [900], "Bytes": [4], "Device ID": [0]}),
        ("nvtx_gpu_proj_sum", {"Text": ["step"], "Count": [1], "Sum": [5], "Min": [5], "Max": [5]}),
    ],
)  # fmt: skip
def test_a_difference_is_a_note(
    recipe: str, rows: dict[str, list[object]], lent: Path, bundle: Bundle
) -> None:
    pl.DataFrame(rows).write_parquet(lent / recipe)
    found = analysed(bundle).rows(
        "SELECT level, example FROM ingest_note WHERE code = ?", [f"recipe_differs_{recipe}"]
    )
    assert [level for level, _ in found] == ["warning"]
    assert "theirs" in found[0][1]


def test_a_summary_that_lacks_what_we_have_is_a_difference(lent: Path, bundle: Bundle) -> None:
    case = analysed(bundle)  # every recipe says that there is no data
    assert recordings.notes(case)["recipe_differs_cuda_gpu_kern_sum"] == 1


def test_time_is_bounded_and_what_was_not_run_is_said(lent: Path, bundle: Bundle) -> None:
    (lent / "slow").touch()
    begun = time.monotonic()
    case = analysed(bundle, budget_s=2.0)
    assert time.monotonic() - begun < 40
    assert case.rows("SELECT status, count(*) FROM recipe_run GROUP BY status ORDER BY 1") == [
        ("failed", 1),
        ("not_run", 8),
    ]
    assert recordings.notes(case)["recipes_failed"] == 9
    assert case.scalar("SELECT n_kernel FROM gpu_breakdown WHERE device IS NULL") == 2


def test_results_that_cannot_be_read_stop_nothing(lent: Path, bundle: Bundle) -> None:
    (lent / "cuda_gpu_kern_sum").write_bytes(b"no parquet")
    case = analysed(bundle)
    assert (
        case.scalar("SELECT status FROM recipe_run WHERE recipe = 'cuda_gpu_kern_sum'")
        == "failed"
    )
    assert case.scalar("SELECT count(*) FROM recipe_run") == len(recipes.RECIPES)


def test_off_without_an_environment_and_said_once(
    lent: Path, bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(nsys_recipe.VARIABLE, str(tmp_path / "none"))
    case = analysed(bundle)
    assert recordings.notes(case)["recipes_off"] == 1
    assert "RCA_RECIPE_PYTHON" in str(
        case.scalar("SELECT message FROM ingest_note WHERE code = 'recipes_off'")
    )
    assert case.scalar("SELECT count(*) FROM recipe_run") == 0
    assert "recipes_off" not in recordings.notes(analysed(bundle, budget_s=None))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "a100_llm_report1.nsys-rep",
        "rtx3090_tensoriterator_report2.qdrep",
        "h100_vqe_report1.nsys-rep",
    ],
)
def test_real_recipes_agree_with_our_figures(name: str, conformance: Path) -> None:
    recordings.need_nsys()
    try:
        nsys_recipe.find_python()
    except NsysError as error:
        pytest.skip(str(error))
    case = analysed(
        Bundle([BundleFile(conformance / "nsys" / name, name, "incident")]), budget_s=500.0
    )
    assert (
        case.rows(
            "SELECT recipe, reason FROM recipe_run WHERE status NOT IN ('rows', 'no_data')"
        )
        == []
    )
    assert (
        case.rows("SELECT recipe, name, theirs, ours FROM recipe_check WHERE NOT agrees") == []
    )
    assert case.scalar("SELECT count(*) FROM recipe_check") > 3
