-- The batch that each request met and the rate at which requests came.
WITH metric AS (
    SELECT part, ts_ns, sum(value) AS running
    FROM role_value
    WHERE role = 'running' AND value IS NOT NULL
    GROUP BY part, ts_ns
),
request AS (
    SELECT r.source_id, r.trace_id, src.part, r.start_ns, r.e2e_ns
    FROM cohort_request AS r
    JOIN source AS src ON src.id = r.source_id
),
-- Requests in flight: starts less ends so far.
event AS (
    SELECT part, start_ns AS ts_ns, 1 AS step FROM request
    UNION ALL
    SELECT part, start_ns + e2e_ns, -1 FROM request
),
flight AS (
    SELECT part, ts_ns, max(running) AS running
    FROM (
        SELECT part, ts_ns, step,
            sum(step) OVER (PARTITION BY part ORDER BY ts_ns, step DESC ROWS UNBOUNDED PRECEDING) AS running
        FROM event
    )
    WHERE step = 1
    GROUP BY part, ts_ns
),
placed AS (
    SELECT r.source_id, r.trace_id, r.start_ns, m.running AS measured, m.ts_ns AS measured_ns,
        f.running AS counted,
        count(*) OVER (PARTITION BY r.part ORDER BY r.start_ns
            RANGE BETWEEN 5000000000 PRECEDING AND 5000000000 FOLLOWING) / 10.0 AS rate_per_s
    FROM request AS r
    ASOF LEFT JOIN metric AS m ON m.part = r.part AND m.ts_ns <= r.start_ns
    LEFT JOIN flight AS f ON f.part = r.part AND f.ts_ns = r.start_ns
)
SELECT source_id, trace_id, rate_per_s,
    greatest(1, CASE WHEN start_ns - measured_ns <= 60000000000 THEN measured ELSE counted END) AS batch
FROM placed
