"""Alerts that the metrics themselves tell of: Prometheus' series ALERTS, as rows of `alert`."""

from __future__ import annotations

from rca.case import Case


def collect(case: Case) -> int:
    """Write alert rows for every stretch in which an ALERTS series fired; returns how many.

    An alert that a file of alerts tells of already, by name and within five minutes, is not
    written again.
    """
    case.execute(
        "DELETE FROM alert WHERE source_id IN (SELECT id FROM source WHERE kind = 'metrics')"
    )
    case.execute(
        """
        INSERT INTO alert (source_id, name, start_ns, end_ns, severity, labels, annotations)
        SELECT f.source_id, f.name, f.start_ns, f.end_ns, f.severity, f.labels, '{}'
        FROM firing_alert AS f
        WHERE NOT EXISTS (
            SELECT 1 FROM alert AS a
            WHERE a.name = f.name AND abs(a.start_ns - f.start_ns) <= 300000000000)
        ORDER BY f.start_ns, f.name, f.labels
        """
    )
    return int(
        case.scalar(
            "SELECT count(*) FROM alert WHERE source_id IN (SELECT id FROM source WHERE kind = 'metrics')"
        )
    )
