-- What servers counted in the histograms of the latencies that users feel: gain of each bucket from
-- scrape to scrape, buckets made disjoint. Where a histogram has no buckets, its count alone.
CREATE VIEW latency_count AS
WITH counted AS (
    SELECT r.role, r.service, r.replica, r.series_id, regexp_replace(s.name, '_count$', '') AS base,
        src.part
    FROM series_role AS r
    JOIN series AS s ON s.id = r.series_id
    JOIN source AS src ON src.id = s.source_id
    WHERE r.role IN ('e2e_latency', 'gateway_latency', 'ttft', 'itl') AND r.how = 'den' AND s.name LIKE '%\_count' ESCAPE '\'
),
-- Factor from the histogram's unit to seconds.
unit AS (
    SELECT DISTINCT r.role, regexp_replace(s.name, '_sum$', '') AS base, r.scale
    FROM series_role AS r
    JOIN series AS s ON s.id = r.series_id
    WHERE r.role IN ('e2e_latency', 'gateway_latency', 'ttft', 'itl') AND r.how = 'num'
),
-- Buckets carry the labels of their count and `le`.
bucket AS (
    SELECT c.role, c.service, c.replica, c.part, c.base, b.id AS series_id, prom_bound(b.labels['le']) AS le
    FROM counted AS c
    JOIN series AS o ON o.id = c.series_id
    JOIN series AS b ON b.source_id = o.source_id AND b.name = c.base || '_bucket'
        AND map_from_entries(list_filter(map_entries(b.labels), lambda e: e.key <> 'le')) = o.labels
),
every AS (
    SELECT * FROM bucket
    UNION ALL
    SELECT role, service, replica, part, base, series_id, NULL
    FROM counted
    WHERE base NOT IN (SELECT base FROM bucket)
),
gain AS (
    SELECT e.part, e.role, e.service, e.replica, e.base, coalesce(e.le, 'infinity'::DOUBLE) * coalesce(u.scale, 1) AS le,
        c.ts_ns, sum(c.delta) AS n
    FROM every AS e
    JOIN counter_rate AS c ON c.series_id = e.series_id
    LEFT JOIN unit AS u ON u.role = e.role AND u.base = e.base
    GROUP BY ALL
)
SELECT
    -- 'incident' or 'baseline'.
    part,
    -- 'e2e_latency' (an engine's requests), 'gateway_latency' (a service's), 'ttft' or 'itl'.
    role,
    -- Service of the series.
    service,
    -- Replica of the series.
    replica,
    -- Longer than this, in seconds; NULL for the first bucket.
    lag(le) OVER w AS longer_than,
    -- Not longer than this, in seconds.
    le AS up_to,
    -- Time of the scrape, ns since the Unix epoch.
    ts_ns,
    -- Observations since the scrape before; NULL is never, negative only where buckets disagree.
    n - coalesce(lag(n) OVER w, 0) AS n
FROM gain
WINDOW w AS (PARTITION BY part, role, service, replica, base, ts_ns ORDER BY le)
-- One histogram for each target: the one whose name comes first.
QUALIFY base = min(base) OVER (PARTITION BY part, role, service, replica);

-- The same of the histograms that count each request once, when it is finished. By these the clock
-- of traces is compared with the clock of the metrics.
CREATE VIEW served_count AS
SELECT
    -- 'incident' or 'baseline'.
    part,
    -- 'e2e_latency' (an engine's requests) or 'gateway_latency' (a service's).
    role,
    -- Service of the series.
    service,
    -- Replica of the series.
    replica,
    -- Longer than this, in seconds; NULL for the first bucket.
    longer_than,
    -- Not longer than this, in seconds.
    up_to,
    -- Time of the scrape, ns since the Unix epoch.
    ts_ns,
    -- Requests finished since the scrape before; NULL is never, negative only where buckets disagree.
    n
FROM latency_count
WHERE role IN ('e2e_latency', 'gateway_latency');

-- Requests as spans have them, by the server that counts them when they end.
CREATE VIEW served_span AS
SELECT
    -- The source that the trace is filed under.
    source_id,
    -- The source that holds the span.
    recorded_in,
    -- Role of the counter that counts it: 'e2e_latency' or 'gateway_latency'.
    'e2e_latency' AS role,
    -- Service, '' when unknown.
    coalesce(service, '') AS service,
    -- Replica, '' when unknown.
    coalesce(replica, '') AS replica,
    -- End by the clock of the source that the trace is filed under, ns since the Unix epoch.
    start_ns + dur_ns AS end_ns,
    -- Duration in seconds as the server measured it.
    coalesce(e2e_ns, dur_ns) / 1e9 AS seconds
FROM engine_span
UNION ALL
SELECT s.source_id, s.recorded_in, 'gateway_latency', coalesce(s.service, ''), '', s.start_ns + s.dur_ns, s.dur_ns / 1e9
FROM trace_span AS s
WHERE s.kind = 'server' AND s.dur_ns IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM engine_span AS e
        WHERE e.source_id = s.source_id AND e.trace_id = s.trace_id AND e.span_id = s.span_id);
