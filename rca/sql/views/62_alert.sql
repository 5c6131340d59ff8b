-- Alerts as Prometheus' own series ALERTS has them: one row for each stretch in which one fired.
CREATE VIEW firing_alert AS
WITH point AS (
    SELECT s.id, s.source_id, s.labels, v.ts_ns,
        lag(v.ts_ns) OVER (PARTITION BY s.id ORDER BY v.ts_ns) AS before_ns,
        -- Scrapes of the whole source, since an alert may be seen once only.
        (SELECT median(d) FROM (
            SELECT ts_ns - lag(ts_ns) OVER (ORDER BY ts_ns) AS d
            FROM (SELECT DISTINCT x.ts_ns FROM sample AS x JOIN series AS y ON y.id = x.series_id
                WHERE y.source_id = s.source_id AND y.name = 'ALERTS')
        )) AS step_ns,
        src.last_ns
    FROM series AS s
    JOIN source AS src ON src.id = s.source_id
    JOIN sample AS v ON v.series_id = s.id
    WHERE s.name = 'ALERTS' AND s.labels['alertstate'] = 'firing' AND v.value = 1
),
run AS (
    SELECT *, sum(CAST(before_ns IS NULL OR ts_ns - before_ns > 3 * step_ns AS INTEGER))
        OVER (PARTITION BY id ORDER BY ts_ns) AS run
    FROM point
)
SELECT
    -- The source it comes from.
    source_id,
    -- Name of the alert.
    coalesce(any_value(labels['alertname']), '') AS name,
    -- First sample that fires, ns since the Unix epoch.
    min(ts_ns) AS start_ns,
    -- A step after the last sample that fires; NULL when it still fired at the end of the source.
    CASE WHEN max(ts_ns) + coalesce(any_value(step_ns), 0) < any_value(last_ns)
        THEN CAST(max(ts_ns) + coalesce(any_value(step_ns), 0) AS BIGINT) END AS end_ns,
    -- Severity; NULL when no label says.
    any_value(labels['severity']) AS severity,
    -- Labels, a JSON object.
    to_json(any_value(labels)) AS labels
FROM run
GROUP BY source_id, id, run;
