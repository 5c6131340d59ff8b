-- Spans by the number of times that the service changed on the way to them. Of each stay in a service
-- the first span counts.
WITH RECURSIVE chosen AS (
    SELECT source_id, trace_id, side
    FROM cohort_request
    QUALIFY row_number() OVER (PARTITION BY side ORDER BY hash(trace_id), source_id, trace_id) <= 1000
),
spans AS (
    SELECT c.side, s.source_id, s.trace_id, s.span_id, s.parent_id, coalesce(s.service, '') AS service,
        s.dur_ns, s.status = 'error' AS is_failed
    FROM chosen AS c
    JOIN trace_span AS s ON s.source_id = c.source_id AND s.trace_id = c.trace_id
    WHERE s.dur_ns IS NOT NULL
),
walk AS (
    SELECT r.*, 0 AS depth, true AS is_entry, 0 AS steps
    FROM spans AS r
    LEFT JOIN spans AS p
        ON p.source_id = r.source_id AND p.trace_id = r.trace_id AND p.span_id = r.parent_id
    WHERE p.span_id IS NULL
    UNION ALL
    SELECT s.*, w.depth + CAST(s.service <> w.service AS INTEGER), s.service <> w.service, w.steps + 1
    FROM walk AS w
    JOIN spans AS s
        ON s.source_id = w.source_id AND s.trace_id = w.trace_id AND s.parent_id = w.span_id
        AND s.span_id <> w.span_id
    -- Damaged traces may run in circles.
    WHERE w.steps < 64
),
size AS (
    SELECT count(*) FILTER (side = 'window') AS n_window, count(*) FILTER (side = 'reference') AS n_reference
    FROM chosen
),
level AS (
    SELECT w.depth,
        count(*) FILTER (side = 'window') / nullif(any_value(z.n_window), 0) AS per_request,
        count(*) FILTER (side = 'reference') / nullif(any_value(z.n_reference), 0) AS per_request_reference,
        avg(dur_ns) FILTER (side = 'window') AS mean_ns,
        avg(dur_ns) FILTER (side = 'reference') AS mean_reference_ns,
        avg(CAST(is_failed AS INTEGER)) FILTER (side = 'window') AS failed_share
    FROM walk AS w
    CROSS JOIN size AS z
    WHERE w.is_entry
    GROUP BY w.depth
)
SELECT *,
    (per_request / nullif(per_request_reference, 0))
        / nullif(lag(per_request / nullif(per_request_reference, 0)) OVER (ORDER BY depth), 0) AS hop_ratio
FROM level
WHERE per_request > 0
ORDER BY depth;
