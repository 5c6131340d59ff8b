"""The road from a bundle to a diagnosed case."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl

from rca import (
    __version__,
    alerts,
    attribution,
    catalogue,
    clock,
    derived,
    evidence,
    findings,
    fixes,
    gaps,
    guardrails,
    hypotheses,
    lint,
    machine,
    patterns,
    roles,
    scratch,
    signals,
    traces,
    trial,
    window,
)
from rca.archive import DEFAULT_MAX_UNPACKED
from rca.bundle import Bundle, find, unknown_settings
from rca.case import Case
from rca.diagnosed import DiagnosedCase
from rca.durable import write_whole
from rca.errors import CaseError, RcaError
from rca.evidence import groups, suspects
from rca.ingest import Progress, ingest
from rca.judge import Judge, LlmJudge, RulesJudge, record
from rca.nsys import recipes
from rca.plain import moment
from rca.trial import DEFAULT_BUDGET_S
from rca.views import ASKED_BY_STAGES, computed_once
from rca.window import objective

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Step = Callable[[str], None]
"""Called with the name of each stage as it begins."""


@dataclass(frozen=True)
class Options:
    """How to analyse.

    Attributes:
        judge: Who judges beside the offline rules; nobody unless given.
        trial_budget_s: Wall time for the experiment, None for no experiment.
        causes: Folder with further causes.
        max_unpacked: Bytes that archives may unpack to.
        recipes_budget_s: Wall time for NVIDIA's recipes on its reports, None for none.
        memory_bytes: Memory of DuckDB, parsers come on top; see `_memory_for` when None.
        resume: Go on with a case that holds a part of the bundle.
        window: Start and end of the incident, ns since the Unix epoch, where they are known.
        without: Causes left out of the catalogue.
        answer_only: Leave out what the verdict does not rest on: patterns, gaps, fixes and their rules.
        prepare: Called with the case when all is read and nothing concluded.
    """

    judge: Judge | None = None
    trial_budget_s: float | None = DEFAULT_BUDGET_S
    causes: Path | None = None
    max_unpacked: int = DEFAULT_MAX_UNPACKED
    recipes_budget_s: float | None = recipes.DEFAULT_BUDGET_S
    memory_bytes: int | None = None
    resume: bool = False
    window: tuple[int, int] | None = None
    without: frozenset[str] = frozenset()
    answer_only: bool = False
    prepare: Callable[[Case], None] | None = None


def _silent(_: str) -> None:
    return


def analyze(
    paths: Sequence[Path],
    baseline: Path | None = None,
    case_path: Path | None = None,
    options: Options | None = None,
    *,
    out: Path | None = None,
    step: Step = _silent,
    progress: Progress | None = None,
) -> DiagnosedCase:
    """Read a bundle, find the incident, its cause and a fix, and put both to the test.

    Args:
        paths: Folders, archives or files of the incident; see `rca.bundle.find`.
        baseline: Folder, archive or file of a healthy time.
        case_path: Where the case is kept; in memory when None.
        out: Folder for the documents, see `write`; none are written when None.

    Raises:
        RcaError: Nothing could be read, or the case cannot be written.
    """
    options = options or Options()
    step("ingest")
    case, bundle = _read(paths, baseline, case_path, options, progress)
    settings = bundle.settings
    if options.prepare is not None:
        options.prepare(case)
    if options.window is not None:
        _check_window(case, *options.window)
        settings = settings | {"incident": _as_settings(options.window)}
    with _diagnosed(case, settings, options, step):
        _note_settings(case, bundle.settings)
        _write_provenance(case, bundle, options)
        if out is not None:
            step("documents")
            write(case, out)
    return case


def _check_window(case: Case, start_ns: int, end_ns: int) -> None:
    """What is explained must have been recorded.

    Raises:
        RcaError: Nothing of the incident's recordings lies between the two times.
    """
    ends = "SELECT min(first_ns), max(last_ns) FROM source WHERE part = 'incident'"
    first, last = case.rows(ends)[0]
    if first is None or start_ns > last or end_ns < first:
        case.close()
        reach = (
            f"they reach from {moment(first)} to {moment(last)} UTC" if first else "no times"
        )
        raise RcaError(
            f"nothing was recorded from {moment(start_ns)} to {moment(end_ns)} UTC", hint=reach
        )


def _note_settings(case: Case, settings: dict[str, Any]) -> None:
    """Say which settings of bundle.toml were passed over."""
    _, other = objective.read(window.table(settings, "slo"))
    told = unknown_settings(settings) + [
        f"slo.{text} is not held against requests: docs/formats.md says what an objective is called"
        for text in other
    ]
    case.execute("DELETE FROM ingest_note WHERE code = 'setting_not_read'")
    rows = [
        {"level": "warning", "code": "setting_not_read", "message": text, "count": 1, "example": "bundle.toml"}
        for text in told
    ]  # fmt: skip
    if rows:
        case.insert("ingest_note", pl.DataFrame(rows))


def _as_settings(window: tuple[int, int]) -> dict[str, datetime]:
    start, end = (_EPOCH + timedelta(microseconds=ns // 1000) for ns in window)
    return {"start": start, "end": end}


def read(
    paths: Sequence[Path],
    baseline: Path | None = None,
    case_path: Path | None = None,
    options: Options | None = None,
    *,
    progress: Progress | None = None,
) -> DiagnosedCase:
    """Read a bundle into a case, roles assigned, nothing diagnosed.

    Files that an existing case has already are passed over. Of the options only `max_unpacked`
    and `memory_bytes` count.
    """
    options = replace(options or Options(), recipes_budget_s=None)
    case, _ = _read(paths, baseline, case_path, options, progress, keep=True)
    roles.assign(case)
    return case


def _read(
    paths: Sequence[Path],
    baseline: Path | None,
    case_path: Path | None,
    options: Options,
    progress: Progress | None,
    *,
    keep: bool = False,
) -> tuple[DiagnosedCase, Bundle]:
    with scratch.folder() as workspace:
        bundle = find(paths, baseline, workspace, options.max_unpacked)
        case = _case(case_path, keep=keep or options.resume)
        case.limit(memory_bytes=options.memory_bytes or _memory_for(bundle))
        if options.resume:
            _check_same_bundle(case, bundle)
        ingest(case, bundle, progress)
        recipes.run(case, bundle, options.recipes_budget_s)
    return case, bundle


def _memory_for(bundle: Bundle) -> int:
    """Half of what the recordings take, at least 500 MB, at most half of the machine's."""
    recorded = sum(file.path.stat().st_size for file in bundle.files if file.path.is_file())
    return min(machine.memory_bytes() // 2, max(500_000_000, recorded // 2))


def _case(path: Path | None, *, keep: bool) -> DiagnosedCase:
    if keep and path is not None and path.is_file():
        return DiagnosedCase.open(path)
    return DiagnosedCase.create(path)


def _check_same_bundle(case: Case, bundle: Bundle) -> None:
    """What is gone on with must be the same recordings.

    Raises:
        CaseError: The case holds a file that the bundle does not.
    """
    here = {(file.name, file.part) for file in bundle.files}
    for path, part in case.rows("SELECT path, part FROM source ORDER BY id"):
        if (path, part) not in here:
            case.close()
            raise CaseError(
                f"holds {path}, which this bundle does not",
                path=str(case.path),
                hint="leave out --resume to begin anew",
            )


def sources(case: Case) -> list[dict[str, Any]]:
    """What was read, one record a source."""
    columns = "id, part, kind, format, path, bytes, status, note, n_elements, n_rows, first_ns, last_ns"
    return case.sql(f"SELECT {columns} FROM source ORDER BY id").to_dicts()


def judge_again(path: Path, causes: Path | None, judge: Judge | None = None) -> DiagnosedCase:
    """Rank and judge an existing case again, on the evidence that it holds."""
    case = DiagnosedCase.open(path)
    _keep_causes(case, causes)
    hypotheses.rank(case)
    findings.conclude(case)
    gaps.look(case)
    _judge(case, judge)
    fixes.propose(case)
    guardrails.propose(case)
    return case


def _keep_causes(case: Case, causes: Path | None) -> None:
    """Other causes than those that the case was given, where some are named."""
    if causes is not None:
        catalogue.keep(case, causes)


def judge_requests(path: Path, causes: Path | None, judge: LlmJudge) -> list[dict[str, Any]]:
    """The bodies of all calls that `judge_again` would make; the case stays as it is.

    Raises:
        JudgeError: There is nothing to judge, or it does not fit.
    """
    with Case.open(path) as case:
        case.execute("BEGIN")
        try:
            _keep_causes(case, causes)
            hypotheses.rank(case)
            gaps.look(case)
            return [r.body for r in judge.requests(case)]
        finally:
            case.execute("ROLLBACK")


def _judge(case: Case, judge: Judge | None) -> None:
    """Write the rules' verdict, and after it that of another judge; fixes rest on the former."""
    case.clear(["verdict", "judge_opinion", "judge_panel", "judge_mask", "judge_text"])
    rules = RulesJudge().judge(case)
    record(case, rules)
    if judge is not None:
        second = judge.judge(case)
        if second != rules:
            record(case, second)


def try_again(
    path: Path, cause: str | None, budget_s: float, fix: Sequence[str] = ()
) -> DiagnosedCase:
    """Run the experiment of an existing case again, for another cause or with another fix.

    Raises:
        CauseError: No cause has this id or alias.
        FixError: A setting that the model does not have, or cannot be run with.
    """
    case = DiagnosedCase.open(path)
    if cause is not None:
        cause = str(catalogue.describe(catalogue.of(case), cause)["id"])
    trial.run(case, budget_s, cause, fix)
    fixes.propose(case)
    return case


@contextmanager
def _diagnosed(
    case: Case, settings: dict[str, Any], options: Options, step: Step = _silent
) -> Iterator[None]:
    """The stages after ingest, each reading and writing tables of the case.

    Inside, what they computed once is still there for whoever writes of the answer.
    """
    step("window")
    roles.assign(case)
    traces.join(case)
    clock.align(case)
    derived.derive(case)
    alerts.collect(case)
    with computed_once(case, ASKED_BY_STAGES):
        _conclude(case, settings, options, step)
        yield


def _conclude(case: Case, settings: dict[str, Any], options: Options, step: Step) -> None:
    """The stages that leave what was recorded as it is."""
    window.locate(case, settings)
    step("evidence")
    evidence.gather(case)
    spans = signals.load(case, spans=True)
    suspects.rank(case, spans)
    attribution.attribute(case)
    if not options.answer_only:
        groups.gather(case, spans)
        patterns.cluster(case)
    findings.gather(case)
    step("hypotheses")
    lint.check(case)
    catalogue.keep(case, options.causes)
    hypotheses.rank(case, options.without)
    findings.conclude(case)
    if not options.answer_only:
        gaps.look(case)
    step("verdict")
    _judge(case, options.judge)
    if options.answer_only:
        return
    step("trial")
    trial.run(case, options.trial_budget_s)
    step("fixes")
    fixes.propose(case)
    guardrails.propose(case)


def _write_provenance(case: Case, bundle: Bundle, options: Options) -> None:
    facts = {
        "rca_version": __version__,
        "judge": getattr(options.judge, "name", "rules"),
        "trial_budget_s": "none"
        if options.trial_budget_s is None
        else f"{options.trial_budget_s:g}",
        "title": str(bundle.settings.get("title", "")),
        "service": str(bundle.settings.get("service", "")),
    }
    links = bundle.settings.get("links", {})
    if isinstance(links, dict):
        facts |= {f"link.{name}": str(url) for name, url in links.items()}
    rows = [{"key": k, "value": v} for k, v in facts.items() if v]
    case.execute("DELETE FROM provenance WHERE key IN (SELECT unnest(?))", [list(facts)])
    case.insert("provenance", pl.DataFrame(rows))


def write(case: Case, out: Path, template: Path | None = None) -> list[Path]:
    """Write postmortem.md, report.html, verdict.json, charts/ and fixes/ below OUT.

    `template` is a form for postmortem.md instead of the one that comes with `rca`.
    """
    import json

    from rca import postmortem
    from rca.answer.verdict_json import verdict

    out.mkdir(parents=True, exist_ok=True)
    path = out / "verdict.json"
    path.unlink(missing_ok=True)  # it is written last, so that where it is the rest is whole
    with computed_once(case):
        written = fixes.write_files(case, out) + guardrails.write_files(case, out)
        written += postmortem.write(case, out, template)
    write_whole(path, json.dumps(verdict(case), indent=2, ensure_ascii=False) + "\n")
    return [*written, path]
