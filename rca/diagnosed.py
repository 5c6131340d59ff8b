"""A case as people hold it: with its answer and its charts at hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rca.case import Case

if TYPE_CHECKING:
    from rca.postmortem.charts import Charts


class DiagnosedCase(Case):
    """A case with `verdict` and `charts`; what `rca.analyze` and `rca.open` return."""

    @property
    def verdict(self) -> dict[str, Any]:
        """What verdict.json says."""
        from rca.verdict_json import verdict

        return verdict(self)

    @property
    def charts(self) -> Charts:
        """The charts of the postmortem, each an Altair chart."""
        from rca.postmortem.charts import Charts

        return Charts(self)
