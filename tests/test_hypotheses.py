"""The catalogue and the scoring of causes."""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import polars as pl
import pytest
from telemetry_builder import SECOND, add_change, add_source, at

from rca.case import Case
from rca.catalogue import Cause, describe, load
from rca.errors import CauseError
from rca.hypotheses import explained_share
from rca.hypotheses.change_fit import Change, changes
from rca.hypotheses.confidence import calibrate, denied, explains_strongest
from rca.hypotheses.scoring import Observed, score
from rca.weights import settings

CAUSES = Path(str(files("rca").joinpath("causes")))


def observed(**strengths: float) -> dict[str, Observed]:
    return {
        r: Observed(f"E{i}", r, g, "metrics") for i, (r, g) in enumerate(strengths.items(), 1)
    }


def best(evidence: dict[str, Observed], changes: list[Change] | None = None) -> list[str]:
    scored = [score(c, evidence, changes or [], 600.0) for c in load().values()]
    return [s.cause.id for s in sorted(scored, key=lambda s: -s.score)]


def test_all_47_causes_load_and_name_each_other() -> None:
    causes = load()
    assert len(causes) == 47
    assert {c.cls for c in causes.values()} == {
        "infra", "config", "dependency", "code-regression", "traffic-spike",
    }  # fmt: skip
    assert all(c.fixes and c.requires for c in causes.values())


@pytest.mark.parametrize("cause", load().values(), ids=lambda c: c.id)
def test_a_cause_wins_on_its_own_signature(cause: Cause) -> None:
    """No signature is contained in another: each is the best answer to exactly what it expects."""
    evidence = observed(**{r: 0.9 * sign for r, (sign, _) in cause.expected.items()})
    assert best(evidence)[0] == cause.id


@pytest.mark.parametrize("path", sorted(CAUSES.glob("*.toml")), ids=lambda p: p.stem)
def test_a_cause_says_one_thing_of_each_role(path: Path) -> None:
    """What may move either way cannot be expected to stay, or to rise, as well."""
    signature = tomllib.loads(path.read_text(encoding="utf-8"))["signature"]
    said = [
        *signature.get("neutral", ()),
        *(r for way in ("up", "down", "flat") for r in signature.get(way, {})),
    ]
    assert sorted(said) == sorted(set(said))


def test_cold_prompts_may_slow_decode_and_come_at_the_usual_rate() -> None:
    """The same number of requests, more of which is computed while others decode."""
    seen = observed(
        prefix_hit_rate=-0.95, tenant_new=0.85, ttft=1.0, waiting=1.0, queue_time=1.0, itl=1.0,
        arrival_rate=0.0, prompt_tokens=0.0, sm_clock=0.0,
    )  # fmt: skip
    assert best(seen)[0] == "prefix_cache_pollution"
    found = score(load()["prefix_cache_pollution"], seen, (), 600.0)
    assert found.score > settings()["guard_score"]
    assert not found.contradicting


def test_the_deciding_evidence_of_look_alikes_decides() -> None:
    leak = {
        "itl": 0.9,
        "host_memory_growth": 0.8,
        "gpu_memory_growth": 0.9,
        "prompt_tokens": 0.0,
    }
    assert best(observed(**leak))[0] == "logits_processor_leak"
    longer = leak | {
        "prompt_tokens": 0.9,
        "long_prompts": 0.8,
        "prefill_time": 0.8,
        "gpu_memory_growth": 0.0,
    }
    assert best(observed(**longer))[0] == "context_inflation"


def test_strong_moves_that_a_cause_does_not_speak_of_count_against_it() -> None:
    cause = load()["kv_pool_too_small"]
    plain = score(cause, observed(preemptions=0.9, kv_usage=0.8), [], 600.0)
    odd = score(cause, observed(preemptions=0.9, kv_usage=0.8, sm_clock=-0.9), [], 600.0)
    assert odd.score < plain.score
    assert odd.contradicting == ["E3"]


def test_without_a_required_move_a_cause_stays_below_unknown() -> None:
    cause = load()["gpu_thermal_or_power_throttle"]
    slow = {"itl": 1.0, "kernel_time": 1.0}
    measured = score(cause, observed(**slow, sm_clock=0.0, gpu_throttled=0.0), [], 600.0)
    assert measured.score < settings()["unknown_score"]
    unmeasured = score(cause, observed(**slow), [], 600.0)
    assert unmeasured.score > measured.score
    assert {r for r, _ in unmeasured.missing} >= {"sm_clock", "gpu_throttled"}


def test_a_change_counts_by_words_target_and_age() -> None:
    cause = load()["tiny_batch"]
    evidence = observed(waiting=0.9, queue_time=0.9, waiting_with_room=0.9)

    def with_change(subject: str, text: str, age_s: float = 5.0) -> float:
        change = Change("chg-1", "E9", "config", subject, text, age_s)
        return score(cause, evidence, [change], 600.0).score

    no_log = score(cause, evidence, [], 600.0).score
    right = with_change("statefulset/llm-engine", "--max-num-seqs 14 --max-num-seqs 5")
    assert right > no_log + 0.2
    unfit = (
        no_log - settings()["no_change"]["config"]
    )  # a log that shows nothing speaks against it
    assert with_change("statefulset/llm-engine", "--block-size 16 --block-size 32") == unfit
    assert with_change("deployment/billing", "--max-num-seqs 14 --max-num-seqs 5") == unfit
    assert (
        no_log
        < with_change("statefulset/llm-engine", "--max-num-seqs 14", age_s=2000.0)
        < right
    )


def test_a_new_build_counts_for_the_regression_whose_mark_was_seen_only() -> None:
    """Any regression may come with a build; which one it was, the mark tells."""
    build = Change(
        "chg-1",
        "E9",
        "deploy",
        "deployment/llm-engine",
        "image: engine:4.7 image: engine:4.8",
        5.0,
    )
    slow = observed(itl=0.9, gc_full=0.9, itl_stalls=0.9)
    marked = score(load()["gc_pause"], slow, [build], 600.0)
    assert marked.score - score(load()["gc_pause"], slow, [], 600.0).score > 0.25
    assert not marked.circumstantial
    unmarked = score(load()["implicit_host_sync"], slow, [build], 600.0)
    assert unmarked.circumstantial
    assert unmarked.score < settings()["unknown_score"]


def test_confidence_is_a_distribution_in_which_unknown_takes_part() -> None:
    throttled = observed(sm_clock=-0.9, gpu_throttled=0.9)
    scored = [score(c, throttled, [], 600.0) for c in load().values()]
    calibrate(scored, throttled)
    total = sum(s.confidence for s in scored)
    assert 0 < total < 1
    nothing = [score(c, {}, [], 600.0) for c in load().values()]
    calibrate(nothing, {})
    assert max(s.confidence for s in nothing) < settings()["least_confidence"]


def test_explained_share_adds_the_parts_that_a_cause_makes_longer() -> None:
    shares = [("queue", 0.7), ("decode", 0.2), ("calls of retriever", 0.1), ("prefill", -0.05)]
    assert explained_share(load()["tiny_batch"], shares) == pytest.approx(0.7)
    assert explained_share(load()["dependency_slow"], shares) == pytest.approx(0.1)
    assert explained_share(load()["tiny_batch"], []) is None


def write_cause(folder: Path, **changes: str) -> Path:
    text = (Path(__file__).parent.parent / "rca/causes/tiny_batch.toml").read_text()
    for old, new in changes.items():
        text = text.replace(old, new)
    path = folder / "mine.toml"
    path.write_text(text)
    return path


def test_a_folder_of_own_causes_adds_and_replaces(tmp_path: Path) -> None:
    write_cause(tmp_path, **{'id = "tiny_batch"': 'id = "my_cause"'})
    assert load(tmp_path)["my_cause"].cls == "config"
    assert len(load(tmp_path)) == 48


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('class = "config"', 'class = "weather"', "mine.toml: class: 'weather' is none of"),
        ("waiting = 1.5", "wating = 1.5", "unknown role 'wating'"),
        ('phase = "mitigate"', 'phase = "soon"', "fix.phase"),
        ('id = "tiny_batch"', 'id = "tiny_batch', "is not valid TOML"),
        ('title = "', 'title = 5 # "', "mine.toml: title: is no text"),
        ("waiting = 1.5", "waiting = nan", "signature: waiting: nan is no weight"),
        ("waiting = 1.5", "waiting = -1e308", "is no weight"),
        ('action = "', 'action = 5 # "', "fix: action or risk is no text"),
        ('id = "tiny_batch"', 'id = "../../x"', "mine.toml: id: '../../x' is no id"),
        ("definition =", "definitoin =", "definition is missing"),
        ('words = "', 'words = "(', "mine.toml"),
        ('cause = "overload"', 'cause = "overlord"', "unknown cause 'overlord'"),
    ],
)
def test_a_broken_cause_is_named_with_its_place(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    folder = write_cause(tmp_path, **{old: new}).parent
    with pytest.raises(CauseError) as caught:
        load(folder)
    assert message in str(caught.value)


def test_a_cause_that_comes_with_rca_says_where_it_was_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    form = re.compile(r"[A-Za-z][\w.-]*#\d+|https://\S+")
    for cause in load().values():
        assert cause.references and all(map(form.fullmatch, cause.references)), cause.id
    name, text = "overload.toml", (CAUSES / "overload.toml").read_text(encoding="utf-8")
    bare = re.sub(r"(?m)^references = .*$", "references = []", text)
    monkeypatch.setattr("rca.catalogue._shipped", lambda: [(name, bare)])
    with pytest.raises(CauseError, match="names no reference"):
        load()


def test_a_cause_of_your_own_needs_no_reference(tmp_path: Path) -> None:
    text = (CAUSES / "overload.toml").read_text(encoding="utf-8")
    bare = re.sub(r"(?m)^references = .*$", "references = []", text)
    (tmp_path / "overload.toml").write_text(bare, encoding="utf-8")
    assert load(tmp_path)["overload"].references == ()


def test_a_cause_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_bytes(b"id = '\xff'")
    with pytest.raises(CauseError, match=r"mine\.toml: is no UTF-8 text"):
        load(tmp_path)


def test_describe_suggests_the_nearest_name() -> None:
    assert describe(load(), "preemption_thrash")["id"] == "kv_pool_too_small"
    with pytest.raises(CauseError, match="did you mean kv_pool_too_small"):
        describe(load(), "kv_pool_to_small")


def test_the_guard_asks_for_strong_moves_and_not_for_less_demand() -> None:
    cause = load()["batch_window_mismatch"]
    fits = {"queue_time": 0.9, "waiting": 0.9, "ttft": 0.9}

    def passes(**more: float) -> bool:
        seen = observed(**fits, **more)
        return explains_strongest([score(cause, seen, [], 600.0)], seen)

    assert passes(prefix_hit_rate=-0.4, arrival_rate=-0.9)
    assert not passes(prefix_hit_rate=-0.9)
    assert not passes(arrival_rate=0.9)


@pytest.mark.parametrize(
    ("made", "effective", "age"),
    [(1000, None, 1000.0), (1000, 1980, 20.0), (1000, 2300, 0.0), (2030, None, 30.0)],
)
def test_a_change_is_as_old_as_the_restart_that_it_brought(
    made: float, effective: float | None, age: float
) -> None:
    with Case.create() as case:
        add_change(
            case,
            add_source(case, "change"),
            "c1",
            made,
            "deploy",
            "deployment/llm-engine",
            "v1",
            "v2",
        )
        if effective is not None:
            case.execute("UPDATE change SET effective_ns = ?", (at(effective),))
        window = {
            "id": 1, "status": "incident", "start_ns": at(2000), "end_ns": at(2600),
            "margin_ns": 15 * SECOND, "detected_by": "scan",
        }  # fmt: skip
        case.insert("incident_window", pl.DataFrame([window]))
        row = {
            "id": "E1", "source": "change", "role": "change", "subject": "c1", "unit": "", "direction": "event",
            "statement": "", "strength": 0.0, "n_reference": 0, "n_observed": 1, "onset_ns": at(made),
            "sql": "SELECT 1",
        }  # fmt: skip
        case.insert("evidence", pl.DataFrame([row]))
        assert [(c.id, c.age_s) for c in changes(case)] == [("c1", age)]


def test_what_an_unsafe_change_moves_by_itself_neither_proves_nor_denies_its_cause() -> None:
    cause = load()["stale_tokenizer_cache_key"]
    seen = observed(
        prefix_hit_rate=-0.9, computed_tokens=0.9, version_skew=1.0, downstream_latency=1.0
    )
    moved = Change("c1", "E9", "deploy", "deployment/llm-engine", "--model-revision=r2", 1.0)
    known = replace(moved, unsafe=frozenset({cause.id}))
    plain, told = (score(cause, seen, [change], 600.0) for change in (moved, known))
    assert not explains_strongest([plain], seen)
    assert denied([plain], seen)
    assert explains_strongest([told], seen)
    assert not denied([told], seen)
    assert told.score > plain.score
