"""The charts: the values they show, and that they look alike in all places."""

from __future__ import annotations

from typing import Any

import case_builder
import polars as pl
import pytest
from recording_builder import END, SECOND, START, T0

from rca.answer import read
from rca.case import Case
from rca.postmortem.charts import Charts, draw
from rca.postmortem.charts.data import DOTS, ChartData
from rca.postmortem.charts.draw import specification
from rca.postmortem.charts.request_rows import band, dots, in_flight
from rca.postmortem.charts.style import config


def data_of(case: Case) -> ChartData:
    return ChartData(case, read(case))


def spec_of(chart: Any) -> dict[str, Any]:
    """The specification with its rows where they are used."""
    spec = specification(chart)
    sets = spec.pop("datasets", {})

    def filled(node: Any) -> Any:
        if isinstance(node, list):
            return [filled(n) for n in node]
        if isinstance(node, dict):
            if node.keys() == {"name"} and node["name"] in sets:
                return {"values": sets[node["name"]]}
            return {key: filled(value) for key, value in node.items()}
        return node

    found: dict[str, Any] = filled(spec)
    return found


def values_of(node: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of a chart of one data set, which Altair hands up to the top."""
    while "data" not in node:
        node = node.get("vconcat", node.get("layer"))[0]  # type: ignore[index]
    rows: list[dict[str, Any]] = node["data"]["values"]
    return rows


def titles_of(spec: dict[str, Any]) -> list[str]:
    return [p["title"]["text"] for p in spec["vconcat"] if "title" in p]


def test_timeline_has_a_panel_for_each_kind_of_recording() -> None:
    spec = spec_of(Charts(case_builder.diagnosed()).timeline())
    assert titles_of(spec) == [
        "changes ◆ and alerts ▲",
        "requests, end to end (s): each one, and median to p99 of all",
        "requests in flight, and of them waiting in a queue",
        "vllm e2e latency (s)  E7",
        "vllm waiting (requests)  E1",
        "vllm KV usage  E2",
    ]
    marks = spec["vconcat"][0]["layer"][2]["data"]["values"]
    assert [m["text"].split(":")[0] for m in marks] == [
        "scale",
        "deploy",
        "alert HighLatency fires",
    ]
    assert [m["level"] for m in marks] == [0, 1, 2]  # names that would meet stand apart


def test_the_waterfall_adds_up() -> None:
    steps = spec_of(Charts(case_builder.diagnosed()).attribution())["layer"][-1]["data"][
        "values"
    ]
    assert [(s["part"], round(s["from_ms"]), round(s["to_ms"]), s["told"]) for s in steps] == [
        ("healthy", 0, 1100, "1.1 s"),
        ("queue", 1100, 3550, "+2.45 s"),
        ("decode", 3550, 5250, "+1.7 s"),
        ("residual", 5250, 5540, "+290 ms"),
        ("incident", 0, 5540, "5.54 s"),
    ]


def test_every_panel_shades_the_window_and_zooms_with_the_others() -> None:
    spec = spec_of(Charts(case_builder.diagnosed()).timeline())
    panels = spec["vconcat"][:-1]
    for panel in panels:
        (shade,) = panel["layer"][0]["data"]["values"]
        assert (shade["at"], shade["end"]) == (START / 1e6, END / 1e6)
    zoom = next(p for p in spec["params"] if p["name"] == "zoom")
    assert len(zoom["views"]) == len(panels) + 1


def test_a_lone_capture_shows_its_streams() -> None:
    data = data_of(case_builder.gpu_only())
    assert data.streams["lane"].unique().to_list() == ["GPU 0 stream 7"]
    spec = spec_of(Charts(data.case).streams())
    rows = values_of(spec)
    assert (rows[0]["from_ms"], rows[-1]["to_ms"]) == (0, pytest.approx(1.0, abs=0.01))
    busy = sum(r["busy"] * (r["to_ms"] - r["from_ms"]) for r in rows)
    # 0-400 and 300-600 overlap on the stream: 600 us, then 700-800 and 900-1000
    assert busy == pytest.approx(0.8, abs=0.01)
    assert Charts(data.case).attribution() is None
    assert Charts(data.case).kernels() is None  # nothing to compare with


def test_operations_longer_than_a_step_are_shared_out() -> None:
    case = case_builder.gpu_only()
    case.execute("UPDATE gpu_op SET start_ns = ?, dur_ns = 10 WHERE id > 0", [T0 + 2_399_990])
    case.execute("UPDATE gpu_op SET dur_ns = 1_200_000 WHERE id = 0")
    rows = data_of(case).streams
    assert rows["busy"].to_list()[:119] == [1.0] * 119
    # three of 10 ns at one time: no more than busy
    assert sum(
        b * w for b, w in zip(rows["busy"], rows["end_ns"] - rows["start_ns"], strict=True)
    ) == pytest.approx(1_200_030)


def test_distributions_need_both_sides() -> None:
    spec = spec_of(Charts(case_builder.diagnosed()).distributions())
    titles = [p["title"]["text"] for p in spec["concat"]]
    assert titles[:3] == ["end to end", "time to first token", "time in the queue"]
    assert spec["concat"][0]["title"]["subtitle"] == "healthy n = 600, incident n = 276"
    assert Charts(case_builder.gpu_only()).distributions() is None


def test_kernels_are_compared_by_their_share() -> None:
    case = case_builder.gpu_only()
    case.execute(
        "INSERT INTO source (id, part, kind, format, path, bytes, sha256, status, shift_ns) "
        "VALUES (2, 'baseline', 'torch_profiler', 'x', 'b.json', 1, 'y', 'ok', 0)"
    )
    case.execute(
        "INSERT INTO gpu_op (source_id, id, kind, name, device, stream, start_ns, dur_ns) "
        "VALUES (2, 0, 'kernel', 'gemm', 0, 7, ?, 1000000)",
        [T0],
    )
    rows = values_of(spec_of(Charts(case).kernels()))
    gemm = next(r for r in rows if r["name"] == "gemm")
    # 500 of the 900 us of the incident, all of the baseline
    assert (gemm["before"], gemm["after"]) == (1.0, pytest.approx(500 / 900))
    assert gemm["calls"] == "1 → 2"


def requests(n: int) -> pl.DataFrame:
    rows = [
        {"start_ns": i * SECOND, "end_ns": (i + 2) * SECOND, "e2e_ns": 2 * SECOND, "ttft_ns": None,
         "queue_ns": SECOND, "status": "error" if i == 7 else "ok", "trace_id": f"t{i}",
         "tenant": None, "replica": None}
        for i in range(n)
    ]  # fmt: skip
    return pl.DataFrame(rows, schema_overrides={"ttft_ns": pl.Int64, "tenant": pl.String})


def test_in_flight_is_the_mean_number_of_intervals() -> None:
    rows = in_flight(requests(8), 9)  # from 0 to 9 s in steps of a second and a nanosecond
    flying = [round(r["n"], 3) for r in rows if r["what"] == "in flight"]
    waiting = [round(r["n"], 3) for r in rows if r["what"] == "waiting"]
    assert flying == [1, 2, 2, 2, 2, 2, 2, 2, 1]
    assert waiting == [1, 1, 1, 1, 1, 1, 1, 1, 0]


def test_large_cases_are_thinned_and_it_is_said() -> None:
    many = requests(5 * DOTS)
    shown = dots(many)
    assert len(shown) <= DOTS
    assert [d["trace"] for d in shown if d["status"] == "error"] == ["t7"]
    assert len(band(many, 120)) <= 120


def test_charts_say_what_marks_are_and_themes_how_they_look() -> None:
    for chart in draw(case := case_builder.diagnosed(), read(case)):
        assert "config" not in chart.spec
        assert "#" not in str(chart.spec).replace("&#", "")  # no colour of its own
    light, dark = config("light"), config("dark")
    assert light["style"].keys() == dark["style"].keys()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_words_and_lines_stand_out(theme: str) -> None:
    found = config(theme)
    paper = found["background"]
    words = [found["axis"]["labelColor"], found["axis"]["titleColor"], found["title"]["color"]]
    assert min(contrast(w, paper) for w in words) >= 4.5  # WCAG 2.2, AA, text
    lines = [found["style"][s]["color"] for s in ("stem", "healthy", "incident", "middle")]
    lines += found["range"]["category"]
    assert min(contrast(c, paper) for c in lines) >= 3  # and graphics
    assert contrast(found["style"]["text"]["color"], found["style"]["window"]["color"]) >= 4.5


def contrast(one: str, other: str) -> float:
    """Contrast of two colours as WCAG 2 defines it."""
    high, low = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def with_edges(case: Case) -> Case:
    """The case by hand with a graph: a change, its cause, two things that it moved, a symptom."""
    case.execute(
        """INSERT INTO causal_edge VALUES
        (1, 'kv_pool_too_small', 'change:c41', 'change of deployment/vllm-llama', 'change', 'cause:kv_pool_too_small', 'kv pool too small', 'cause', 0.93, 'unknown', NULL, NULL, NULL),
        (2, 'kv_pool_too_small', 'cause:kv_pool_too_small', 'kv pool too small', 'cause', 'E2', 'vllm: KV usage up', 'mechanism', 0.9, 'unknown', NULL, NULL, NULL),
        (3, 'kv_pool_too_small', 'cause:kv_pool_too_small', 'kv pool too small', 'cause', 'E1', 'vllm: waiting up', 'mechanism', 0.9, 'unknown', NULL, NULL, NULL),
        (4, 'kv_pool_too_small', 'E1', 'vllm: waiting up', 'mechanism', 'E7', 'vllm: e2e latency up', 'symptom', 0.8, 'cause first', 30000000000, 1, 2)"""
    )
    return case


def with_studies(case: Case) -> Case:
    """The case by hand with what `rca trial --what-if batch` and `quant` would leave."""
    row = "(?, ?, ?, 'twin', ?, ?, ?, ?, ?, ?, 'cpu')"
    for study, setting, load, figure, value, unit, best in (
        ("batch", "max_num_seqs=16 max_num_batched_tokens=48", 1.0, "slo_share", 0.99, "share", True),
        ("batch", "max_num_seqs=16 max_num_batched_tokens=48", 1.5, "slo_share", 0.4, "share", False),
        ("batch", "max_num_seqs=2 max_num_batched_tokens=48", 1.0, "slo_share", 0.5, "share", False),
        ("quant", "format=float32", None, "decode_step", 900_000.0, "ns", True),
        ("quant", "format=float32", None, "kl_to_float32", 0.0, "nat", True),
        ("quant", "format=float32", None, "top1_agreement", 1.0, "share", True),
        ("quant", "format=int8", None, "decode_step", 700_000.0, "ns", False),
        ("quant", "format=int8", None, "kl_to_float32", 1e-5, "nat", False),
    ):  # fmt: skip
        case.execute(
            f"INSERT INTO what_if VALUES {row}",
            [study, setting, load, figure, value, value * 0.9, value * 1.1, unit, best],
        )
    return case


def test_the_graph_leads_from_the_change_to_what_users_felt() -> None:
    assert Charts(case_builder.diagnosed()).causal() is None
    spec = spec_of(Charts(with_edges(case_builder.diagnosed())).causal())
    known, unknown, heads, words, frames, labels = spec["layer"]
    assert [r["told"] for r in known["data"]["values"]] == ["0.80, 30 s"]
    assert len(unknown["data"]["values"]) == 3  # dashed
    assert len(heads["data"]["values"]) == len(words["data"]["values"]) == 4
    boxes = sorted(frames["data"]["values"], key=lambda b: (b["x"], -b["at"]))
    assert [" ".join(b["label"]) for b in boxes] == [
        "change of deployment/vllm-llama", "kv pool too small", "vllm: KV usage up", "vllm: waiting up",
        "vllm: e2e latency up",
    ]  # fmt: skip
    assert labels["data"] == frames["data"]
    late = with_edges(case_builder.diagnosed())
    late.execute("UPDATE causal_edge SET order_seen = 'effect first' WHERE id = 4")
    dashed, _, words, *_ = spec_of(Charts(late).causal())["layer"]
    assert len(dashed["data"]["values"]) == 4  # none is known to have come first as it should
    assert words["data"]["values"][3]["told"] == "0.80, effect first"
    unsure = with_edges(case_builder.unknown())
    assert Charts(unsure).causal() is None  # no cause, no graph


def test_studies_of_settings_are_drawn_where_they_were_made() -> None:
    none = Charts(case_builder.diagnosed())
    assert none.batch() is None and none.quantisation() is None
    charts = Charts(with_studies(case_builder.diagnosed()))
    cells = values_of(spec_of(charts.batch()))
    assert [(c["setting"], c["load"], c["told"]) for c in cells] == [
        ("seqs 2 tokens 48", "×1", "50%"),
        ("seqs 16 tokens 48", "×1", "★ 99%"),
        ("seqs 16 tokens 48", "×1.5", "40%"),
    ]
    spec = spec_of(charts.quantisation())
    best, other = (layer["data"]["values"] for layer in spec["layer"][1:3])
    assert [(r["setting"], r["ms"], r["kl"]) for r in best] == [("float32", 0.9, 0.0)]
    assert [(r["setting"], r["ms"], r["kl"]) for r in other] == [("int8", 0.7, 1e-5)]
