"""Charts of a case, each defined once: in the notebook, in the report, and as a picture."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rca.answer import Answer, read
from rca.case import Case
from rca.durable import write_whole
from rca.postmortem.charts.causal import causal_graph
from rca.postmortem.charts.data import ChartData
from rca.postmortem.charts.draw import specification, svg
from rca.postmortem.charts.effects import effects, trial_effects
from rca.postmortem.charts.groups import cluster_map
from rca.postmortem.charts.kernels import gpu_streams, kernel_difference
from rca.postmortem.charts.loads import context_curve, slo_heat_map
from rca.postmortem.charts.parts import attribution
from rca.postmortem.charts.spread import distributions
from rca.postmortem.charts.style import config
from rca.postmortem.charts.timeline import timeline
from rca.postmortem.charts.what_if import batch_map, quantisation_front

__all__ = ["PLANS", "Chart", "Charts", "draw", "shown", "write"]

_REPORT_WIDTH = 860


@dataclass(frozen=True)
class Chart:
    """One chart of a document.

    Attributes:
        name: Short and unique; `charts/NAME.svg` is its file.
        title: What it shows, a heading.
        message: How to read it, and what was left out.
        spec: The specification of Vega-Lite, without colours.
        picture: What becomes `svg`.
    """

    name: str
    title: str
    message: str
    spec: dict[str, Any]
    picture: Future[str]

    @property
    def svg(self) -> str:
        """The picture, on light paper; waits until it is drawn."""
        return self.picture.result()

    @property
    def path(self) -> str:
        """Its file below the output folder."""
        return f"charts/{self.name}.svg"


@dataclass(frozen=True)
class _Plan:
    name: str
    title: str
    message: str
    make: Callable[[ChartData, int], Any]
    in_document: bool = False


PLANS = (
    _Plan("timeline", "Timeline", "All recordings on one clock. Shaded: the incident window. Dashes: changes and alerts. Grey line: the healthy value.",
          timeline, in_document=True),
    _Plan("attribution", "Where the added time went", "Mean time of a request; the parts add up, what no part explains is the residual.",
          lambda data, width: attribution(data.answer, width), in_document=True),
    _Plan("effects", "What moved", "Each signal in the window against its healthy value, with its 95 % interval.",
          lambda data, width: effects(data.answer, width), in_document=True),
    _Plan("distributions", "Latency before and in the incident", "The share of requests that were faster; dashed: healthy.",
          distributions),
    _Plan("clusters", "Ways of being slow", "Groups of requests in the window by how they differ from healthy ones of the same size.",
          cluster_map),
    _Plan("kernels", "Kernels side by side", "What each took of the time in its captures; the names that moved most.",
          kernel_difference),
    _Plan("streams", "GPU streams", "How busy each stream was over the time of its capture.",
          gpu_streams),
    _Plan("causal", "Cause and effect", "Solid: the onset of the cause was measured first, and the lag stands there; dashed: the order is not known, or the effect came first. The number is the confidence.",
          lambda data, width: causal_graph(data.answer, width)),
    _Plan("slo", "Where the objective held", "By load, over requests of both sides; a cell without a number has fewer than ten.",
          slo_heat_map),
    _Plan("context", "By prompt length", "Median time to the first token; dashed: healthy.",
          context_curve),
    _Plan("trial", "The experiment", "Figures of the model, not of production, with 95 % intervals over pairs of runs.",
          lambda data, width: trial_effects(data.answer, width)),
    _Plan("batch", "What if: batch size", "Figures of the model, not of production.",
          batch_map),
    _Plan("quant", "What if: number format", "Figures of the model, not of production. Diamonds: nothing tried is faster and truer.",
          quantisation_front),
)  # fmt: skip


class Charts:
    """The charts of a case for notebooks, Altair's; None where the case has nothing to show."""

    def __init__(self, case: Case) -> None:
        self._data = ChartData(case, read(case))

    def timeline(self) -> Any:
        """All recordings on one axis of time; drag and scroll move it, a click picks a request."""
        return _coloured(timeline(self._data))

    def attribution(self) -> Any:
        """Which parts of a request became longer."""
        return _coloured(attribution(self._data.answer))

    def effects(self) -> Any:
        """How far each signal moved against the healthy reference."""
        return _coloured(effects(self._data.answer))

    def distributions(self) -> Any:
        """Latencies, healthy against incident."""
        return _coloured(distributions(self._data))

    def clusters(self) -> Any:
        """Groups of slow requests by what sets them apart."""
        return _coloured(cluster_map(self._data))

    def kernels(self) -> Any:
        """Kernels or operators of baseline and incident side by side."""
        return _coloured(kernel_difference(self._data))

    def streams(self) -> Any:
        """How busy the GPU streams of each capture were."""
        return _coloured(gpu_streams(self._data))

    def causal(self) -> Any:
        """What brought what about, as far as the evidence tells."""
        return _coloured(causal_graph(self._data.answer, _REPORT_WIDTH))

    def batch(self) -> Any:
        """Where the objective held in `rca trial --what-if batch`."""
        return _coloured(batch_map(self._data))

    def quantisation(self) -> Any:
        """Speed against exactness in `rca trial --what-if quant`."""
        return _coloured(quantisation_front(self._data))

    def objective(self) -> Any:
        """Where the objective held, by batch size and arrival rate."""
        return _coloured(slo_heat_map(self._data))

    def trial(self) -> Any:
        """What each set-up of the experiment did."""
        return _coloured(trial_effects(self._data.answer))


def draw(case: Case, answer: Answer) -> list[Chart]:
    """All charts that the case has data for, as wide as the report shows them.

    Pictures are drawn on a thread, while further charts are put together and documents written.
    """
    from altair.utils.schemapi import debug_mode

    data = ChartData(case, answer)
    pool = ThreadPoolExecutor(1)
    drawn = []
    for plan in PLANS:
        with debug_mode(False):  # no checks against the schema while it is built
            chart = plan.make(data, _REPORT_WIDTH)
        if chart is None:
            continue
        spec = specification(chart)
        said = [plan.message, *(data.thinned if plan.name == "timeline" else [])]
        picture = pool.submit(svg, spec, plan.name)
        drawn.append(Chart(plan.name, plan.title, " ".join(said), spec, picture))
    pool.shutdown(wait=False)
    return drawn


def shown(charts: list[Chart]) -> list[Chart]:
    """Those that the postmortem shows."""
    return [c for c in charts if any(p.name == c.name and p.in_document for p in PLANS)]


def write(charts: list[Chart], out: Path) -> None:
    """Write OUT/charts/*.svg."""
    for chart in charts:
        path = out / chart.path
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, chart.svg)


def _coloured(chart: Any) -> Any:
    """The chart with the colours of light paper, as a notebook shows it."""
    if chart is not None:
        chart.config = config("light")
    return chart
